# WeftDeps: the libraries that weft stands on, as imported targets. Also installed, for users of the static library.
# WEFT_SYSROOT (a folder with usr/include and usr/lib/...) is looked in first: machines without root or network.
find_package(Threads REQUIRED)

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
        message(FATAL_ERROR "weft needs ${header} and lib${library} (Debian: lib${library}-dev); `make` installs them")
    endif()
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${${id}_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${${id}_INCLUDE}")
endfunction()

weft__find(weft::dep_jansson jansson.h jansson)
weft__find(weft::dep_hwloc hwloc.h hwloc)
weft__find(weft::dep_xxhash xxhash.h xxhash)

# weft_link_deps(NAME): what libweft's own code needs to compile and link.
function(weft_link_deps name)
    target_link_libraries(${name} PRIVATE weft::dep_jansson weft::dep_hwloc weft::dep_xxhash Threads::Threads m)
    if(WEFT_HAVE_CUDA)
        target_link_libraries(${name} PRIVATE CUDA::cudart_static stdc++)
    endif()
endfunction()
