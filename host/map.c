/* map.c: see map.h. */
#include "map.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_descriptor(int fd, const char *path, weft__map *out)
{
    struct stat s;
    if (fstat(fd, &s)) return weft__fail(WEFT_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode)) return weft__fail(WEFT_EFILE, "%s: not a regular file", path);
    *out = (weft__map){NULL, (uint64_t)s.st_size};
    if (s.st_size == 0) return 0;
    void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return weft__fail(WEFT_EIO, "%s: mmap: %s", path, strerror(errno));
    out->bytes = p;
    return 0;
}

int weft__map_open(const char *path, weft__map *out)
{
    *out = (weft__map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return weft__fail(WEFT_EFILE, "%s: %s", path, strerror(errno));
    int status = map_descriptor(fd, path, out);
    close(fd);
    return status;
}

void weft__map_close(weft__map *map)
{
    if (map->bytes) munmap((void *)(uintptr_t)map->bytes, map->size);
    *map = (weft__map){0};
}

/* Only a hint, before anything is touched. */
static void *ask_huge(void *p, uint64_t bytes)
{
#ifdef MADV_HUGEPAGE
    enum {
        PAGE = 4096,
        WORTH_IT = 4 << 20
    };
    if (!p || bytes < WORTH_IT) return p;
    const uintptr_t from = ((uintptr_t)p + PAGE - 1) / PAGE * PAGE, to = ((uintptr_t)p + bytes) / PAGE * PAGE;
    (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
#endif
    return p;
}

void *weft__table(uint64_t n, uint64_t element)
{
    return n > SIZE_MAX / element ? NULL : ask_huge(malloc(n * element), n * element);
}

void *weft__table_zero(uint64_t n, uint64_t element) { return ask_huge(calloc(n, element), n * element); }
