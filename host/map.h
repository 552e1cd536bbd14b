/* map.h: a whole file, read-only, through mmap. The file must not be cut short while it is mapped (SIGBUS). */
#ifndef WEFT_HOST_MAP_H
#define WEFT_HOST_MAP_H

#include <stdint.h>

typedef struct weft__map {
    const uint8_t *bytes; /* NULL for an empty file */
    uint64_t size;
} weft__map;

int weft__map_open(const char *path, weft__map *out); /* WEFT_EFILE: no such file, not a regular file; WEFT_EIO */
void weft__map_close(weft__map *map);                 /* legal on a zeroed map */

#endif
