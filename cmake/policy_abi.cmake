# Writes HEADER with a hash of FILES (a ;-list under SOURCE): what a policy's module and libweft must have in common.
set(all "")
foreach(file ${FILES})
    file(SHA256 "${SOURCE}/${file}" hash)
    string(APPEND all "${file} ${hash}\n")
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING "${hash}" 0 16 hash)
file(WRITE "${HEADER}" "#define WEFT_POLICY_ABI 0x${hash}ull\n")
