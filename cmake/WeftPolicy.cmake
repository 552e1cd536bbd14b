# WeftPolicy: weft_add_policy(NAME HEADER): a loadable module with a queue policy of your own (docs/policies.md).
# Enters: a header that defines the five functions of megakernel/policy.h, with nothing but weft's sources in its way. Leaves:
# NAME.so, a worker's whole loop around it, for `--queue ./NAME.so`; and where there is nvcc, the same header compiled for
# sm_90a (NAME.cubin), which shows that it is fit for a kernel.
# WEFT_POLICY_SOURCES: where weft's sources are: the installed ones, or (in weft's own build) the tree's.
set(WEFT_POLICY_LOOP cpu_queue.c cpu_rings.c cpu_spin.c cpu_step.c cpu_worker.c policy_module.c)
# All that a module is made from.
set(WEFT_POLICY_FILES
    tasks/abi.h tasks/kinds.h tasks/tasks.def
    megakernel/clock.h megakernel/cpu_worker.h megakernel/order_c11.h megakernel/order_ptx.cuh megakernel/policy.h
    megakernel/policy_module.h megakernel/policy_push.h megakernel/protocol.h)
foreach(file ${WEFT_POLICY_LOOP})
    list(APPEND WEFT_POLICY_FILES megakernel/${file})
endforeach()

function(weft_add_policy name header)
    get_filename_component(header "${header}" ABSOLUTE)
    if(NOT EXISTS "${header}")
        message(FATAL_ERROR "weft_add_policy(${name} ...): there is no ${header}")
    endif()
    set(sources ${WEFT_POLICY_LOOP})
    list(TRANSFORM sources PREPEND "${WEFT_POLICY_SOURCES}/megakernel/")
    add_library(${name} MODULE ${sources})
    set_target_properties(${name} PROPERTIES PREFIX "" C_STANDARD 11 C_EXTENSIONS ON C_VISIBILITY_PRESET hidden)
    set_source_files_properties(${sources} PROPERTIES OBJECT_DEPENDS "${header}")
    target_include_directories(${name} PRIVATE "${WEFT_POLICY_ABI_DIR}" "${WEFT_POLICY_SOURCES}/megakernel")
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE WEFT_POLICY_HEADER="${header}" WEFT_POLICY_NAME="${name}")
    if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
        target_compile_options(${name} PRIVATE -O3)
    endif()
    find_program(WEFT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDACXX PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
    if(NOT WEFT_NVCC)
        return()
    endif()
    set(kernel "${CMAKE_CURRENT_BINARY_DIR}/${name}.cu")
    file(CONFIGURE OUTPUT "${kernel}" @ONLY CONTENT [[#include "@header@"
__global__ void weft_policy_@name@(weft_policy_queue q, uint32_t worker, uint32_t *tasks)
{
    uint32_t task, n = 0;
    for (uint32_t i = worker; i < q.n_task; i += q.n_worker)
        policy_push(&q, WEFT_NONE, i);
    while (policy_pop(&q, worker, &task) || !policy_done(&q, worker))
        tasks[n++] = task;
}
]])
    add_custom_command(OUTPUT ${name}.cubin DEPENDS "${kernel}" "${header}"
        COMMAND "${WEFT_NVCC}" -std=c++17 -arch=sm_90a -cubin "-I${WEFT_POLICY_SOURCES}/megakernel"
                -o ${name}.cubin "${kernel}" VERBATIM)
    add_custom_target(${name}_cubin ALL DEPENDS ${name}.cubin)
endfunction()
