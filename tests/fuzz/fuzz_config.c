/* fuzz_config.c: any bytes as a config.json, and as an index of shards through the scanner. */
#include "../../host/config.h"
#include "../../host/json_scan.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    weft__config c;
    if (weft__config_parse(text, size, "fuzz", &c) == 0 && (c.heads == 0 || c.kv_heads == 0 || c.heads % c.kv_heads))
        abort();
    weft__json j = {"fuzz", text, text, text + size};
    if (weft__json_skip(&j) == 0) weft__json_finish(&j);
    if (j.at < j.start || j.at > j.end) abort();
    return 0;
}
