# WeftDeps: the libraries that weft stands on, as imported targets. Also installed, for users of the static library.
# WEFT_SYSROOT (a folder with usr/include and usr/lib/...) is looked in first: machines without root or network.
find_package(Threads REQUIRED)

# OPTIONAL as fourth argument: where it is missing, there is no target.
function(weft__find target header library)
    if(TARGET ${target})
        return()
    endif()
    set(roots "")
    if(WEFT_SYSROOT)
        set(roots "${WEFT_SYSROOT}/usr" "${WEFT_SYSROOT}")
    endif()
    string(MAKE_C_IDENTIFIER "WEFT_${library}" id)
    find_path(${id}_INCLUDE ${header} HINTS ${roots} PATH_SUFFIXES include)
    find_library(${id}_LIBRARY ${library} HINTS ${roots} PATH_SUFFIXES lib/x86_64-linux-gnu lib)
    if(NOT ${id}_INCLUDE OR NOT ${id}_LIBRARY)
        if("OPTIONAL" IN_LIST ARGN)
            return()
        endif()
        message(FATAL_ERROR "weft needs ${header} and lib${library} (Debian: lib${library}-dev); `make` installs them")
    endif()
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${${id}_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${${id}_INCLUDE}")
endfunction()

weft__find(weft::dep_jansson jansson.h jansson)
weft__find(weft::dep_hwloc hwloc.h hwloc)
weft__find(weft::dep_xxhash xxhash.h xxhash)

# Tokenizers need both; without them they are refused when one is opened, and all else works.
weft__find(weft::dep_pcre2 pcre2.h pcre2-8 OPTIONAL)
weft__find(weft::dep_utf8proc utf8proc.h utf8proc OPTIONAL)
if(TARGET weft::dep_pcre2 AND TARGET weft::dep_utf8proc)
    set(WEFT_HAVE_UNICODE ON)
else()
    set(WEFT_HAVE_UNICODE OFF)
    message(STATUS "weft: no tokenizers: PCRE2 or utf8proc is missing (Debian: libpcre2-dev libutf8proc-dev)")
endif()

# weft_link_deps(NAME): what libweft's own code needs to compile and link.
function(weft_link_deps name)
    target_link_libraries(${name} PRIVATE weft::dep_jansson weft::dep_hwloc weft::dep_xxhash Threads::Threads ${CMAKE_DL_LIBS} m)
    if(WEFT_HAVE_UNICODE)
        target_link_libraries(${name} PRIVATE weft::dep_pcre2 weft::dep_utf8proc)
        target_compile_definitions(${name} PRIVATE WEFT_HAVE_UNICODE)
    endif()
    if(WEFT_HAVE_CUDA)
        target_link_libraries(${name} PRIVATE CUDA::cudart_static stdc++)
    endif()
endfunction()
