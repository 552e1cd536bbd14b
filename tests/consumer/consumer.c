/* consumer.c: the smallest program on libweft: which devices are there? */
#include <weft.h>

#include <stdio.h>

int main(void)
{
    weft_device_info devices[4];
    uint32_t n = 0;
    if (weft_devices("cpu:2x1", devices, 4, &n)) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    printf("weft %s: %u devices, the first is %s\n", weft_version(), n, devices[0].name);
    return n == 2 ? 0 : 1;
}
