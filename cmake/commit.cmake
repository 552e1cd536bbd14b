# Writes HEADER with the commit of SOURCE ("unknown" outside a repository), touching it only when that has changed.
execute_process(COMMAND git -C "${SOURCE}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
    set(commit "unknown")
endif()
set(text "#define WEFT_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS "${HEADER}")
    file(READ "${HEADER}" old)
endif()
if(NOT old STREQUAL text)
    file(WRITE "${HEADER}" "${text}")
endif()
