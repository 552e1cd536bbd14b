# WeftBuild: languages, flags and the two functions that the folders use.
include(GNUInstallDirs)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, ..." FORCE)
endif()
# -g costs nothing at run time and a report from a user is worth more with it.
set(CMAKE_C_FLAGS_RELEASE "-O3 -g -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g -DNDEBUG") # C++ is tests only
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g")

set(WEFT_HAVE_CUDA OFF)
if(NOT WEFT_CUDA STREQUAL "OFF")
    find_program(WEFT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDACXX PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
    if(WEFT_NVCC)
        set(CMAKE_CUDA_ARCHITECTURES OFF) # one target, named in full below: 90a has no meaning to CMake 3.25
        set(CMAKE_CUDA_COMPILER "${WEFT_NVCC}" CACHE FILEPATH "")
        enable_language(CUDA)
        find_package(CUDAToolkit REQUIRED)
        set(WEFT_HAVE_CUDA ON)
        set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo -DNDEBUG")
    elseif(WEFT_CUDA STREQUAL "ON")
        message(FATAL_ERROR "WEFT_CUDA=ON, but no nvcc was found: put it on PATH or set CUDA_HOME")
    endif()
endif()
message(STATUS "weft: CUDA backend ${WEFT_HAVE_CUDA}")

# weft_target(NAME): what every target of this project is compiled with.
function(weft_target name)
    set_target_properties(${name} PROPERTIES
        C_STANDARD 11 C_EXTENSIONS ON CXX_STANDARD 17 CUDA_STANDARD 17 C_STANDARD_REQUIRED ON
        POSITION_INDEPENDENT_CODE ON
        C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)
    set(c "$<COMPILE_LANGUAGE:C>")
    set(host "$<COMPILE_LANGUAGE:C,CXX>")
    set(cuda "$<COMPILE_LANGUAGE:CUDA>")
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
    target_compile_options(${name} PRIVATE "$<${host}:-Wall;-Wextra>" "$<${c}:-Wstrict-prototypes;-fno-math-errno>")
    # nvcc's own stubs warn under -Wextra; -Wall is what its host side can bear.
    target_compile_options(${name} PRIVATE
        "$<${cuda}:-gencode=arch=compute_90a,code=sm_90a;-Xcompiler=-Wall;--expt-relaxed-constexpr>")
    if(WEFT_WERROR)
        target_compile_options(${name} PRIVATE "$<${host}:-Werror>" "$<${cuda}:-Werror=all-warnings>")
    endif()
    if(WEFT_HAVE_CUDA)
        target_compile_definitions(${name} PRIVATE WEFT_HAVE_CUDA)
        target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    endif()
    if(WEFT_SANITIZE)
        target_compile_options(${name} PRIVATE
            "$<${host}:-fsanitize=${WEFT_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
        # gcc 12 loses track of what is set once it has woven in its checks.
        target_compile_options(${name} PRIVATE "$<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-maybe-uninitialized>"
            "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>")
        target_link_options(${name} PRIVATE "-fsanitize=${WEFT_SANITIZE}")
    endif()
    if(WEFT_FUZZ)
        target_compile_options(${name} PRIVATE "$<${host}:-fsanitize=fuzzer-no-link>")
    endif()
endfunction()

# weft_sources(FILE...): adds this folder's files to the library. *.cu files count only with the CUDA backend.
function(weft_sources)
    foreach(file ${ARGN})
        if(file MATCHES "\\.cu$" AND NOT WEFT_HAVE_CUDA)
            continue()
        endif()
        target_sources(weft_objects PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/${file}")
    endforeach()
endfunction()
