// A CUDA driver without a GPU: it records launches, and what it was told, as text.
//
// A "cubin" is the text "name:8,4,8": the kernel and the bytes of each of its parameters. Every address from 2^32 up is
// memory of GPU 0, from 2^40 up of GPU 1.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char log_text[1 << 16], failing[64];
static int status_of_failure, maps;
static _Thread_local void *context;  // as in a real driver, each thread enters one for itself

#define CHECK(name) if (!strcmp(failing, name)) return status_of_failure
#ifdef QUIET
#define LOGS 0
#define BLOCKS 1000
#define LOG(...)
#else
#define LOGS 1
#define BLOCKS 2
#define LOG(...) snprintf(log_text + strlen(log_text), sizeof log_text - strlen(log_text), __VA_ARGS__)
#endif

const char *stub_log(void) { return log_text; }
void stub_reset(const char *name, int status) {
  log_text[0] = 0;
  context = 0;
  maps = 0;
  snprintf(failing, sizeof failing, "%s", name);
  status_of_failure = status;
}

int cuInit(unsigned flags) { CHECK("cuInit"); return 0; }
int cuGetErrorString(int status, const char **text) {
  *text = status == 2 ? "out of memory" : status == 700 ? "an illegal memory access was encountered" : 0;
  return *text ? 0 : 1;
}
int cuCtxGetCurrent(void **found) { *found = context; return 0; }
int cuCtxSetCurrent(void *made) { context = made; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGet(int *device, int ordinal) { CHECK("cuDeviceGet"); *device = ordinal; return 0; }
int cuDevicePrimaryCtxRetain(void **made, int device) { *made = (void *)(uintptr_t)(100 + device); return 0; }
int cuModuleLoadData(void **module, const char *image) {
  CHECK("cuModuleLoadData");
  LOG("load %s\n", image);
  *module = strdup(image);
  return 0;
}
int cuModuleUnload(void *module) { free(module); return 0; }
int cuModuleGetFunction(void **function, char *module, const char *name) {
  size_t length = strlen(name);
  if (strncmp(module, name, length) || module[length] != ':') return 500;
  *function = module;
  return 0;
}
static int parameter(const char *function, size_t index) {
  const char *text = strchr(function, ':') + 1;
  while (*text && index--) text = strchr(text, ',') ? strchr(text, ',') + 1 : "";
  return atoi(text);
}
int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size) {
  *size = parameter(function, index);
  return *size ? 0 : 1;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  CHECK("cuFuncSetAttribute");
  LOG("attribute %d = %d\n", attribute, value);
  return 0;
}
int cuPointerGetAttribute(int *device, int attribute, uint64_t address) {
  if (attribute != 9 || address < 1ull << 32) return 1;
  *device = address >= 1ull << 40;
  return 0;
}
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *shape,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int promotion, int fill) {
  CHECK("cuTensorMapEncodeTiled");
  if ((uintptr_t)map % 64 || (uintptr_t)address % 16) return 1;
  LOG("map %d at %llu:", type, (unsigned long long)(uintptr_t)address);
  for (unsigned i = 0; i < rank; i++) LOG(" %llu", (unsigned long long)shape[i]);
  for (unsigned i = 0; i + 1 < rank; i++) LOG(" /%llu", (unsigned long long)strides[i]);
  for (unsigned i = 0; i < rank; i++) LOG(" [%u]", box[i] * steps[i]);
  LOG(" %d %d %d %d\n", interleave, swizzle, promotion, fill);
  memset(map, 0, 128);
  *(uint64_t *)map = ++maps;
  return 0;
}
// 4 multiprocessors with room for BLOCKS blocks each; streams from 500 up are being captured.
int cuDeviceGetName(char *name, int length, int device) { strncpy(name, "stub", length); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 16 ? 4 : attribute == 75 ? 9 : attribute == 95;
  return 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
  *blocks = BLOCKS;
  return 0;
}
int cuStreamIsCapturing(void *stream, int *status) { if (!context) return 201; *status = (uintptr_t)stream >= 500; return 0; }
int cuStreamSynchronize(void *stream) { return 0; }
static uint64_t allocated;
int cuMemAlloc_v2(uint64_t *address, size_t size) {
  *address = (1ull << 38) + allocated;
  allocated += (size + 255) / 256 * 256;
  return 0;
}
int cuMemFree_v2(uint64_t address) { return 0; }
struct side { size_t x, y; int memory; void *host; uint64_t device; void *array; size_t pitch; };
struct copy { struct side from, to; size_t width, count; };
int cuMemcpy2DAsync_v2(const struct copy *copy, void *stream) {
  if (copy->from.memory != 2 || copy->to.memory != 2 || copy->from.pitch < copy->width) return 1;
  LOG("copy %zu of %zu from %lu /%zu to /%zu stream %lu\n", copy->count, copy->width, (unsigned long)copy->from.device,
      copy->from.pitch, copy->to.pitch, (unsigned long)(uintptr_t)stream);
  return 0;
}
int cuMemsetD32Async(uint64_t address, unsigned value, size_t count, void *stream) {
  LOG("fill %lu with %zu of %u stream %lu\n", (unsigned long)address, count, value, (unsigned long)(uintptr_t)stream);
  return 0;
}
int cuLaunchKernel(const char *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **params, void **extra) {
  CHECK("cuLaunchKernel");
  if (!context) return 201;
  LOG("launch %.*s grid %u %u %u block %u %u %u shared %u stream %lu:", (int)(strchr(function, ':') - function),
      function, gx, gy, gz, bx, by, bz, shared, (unsigned long)(uintptr_t)stream);
  for (size_t i = 0; LOGS && parameter(function, i); i++)
    if (parameter(function, i) == 128) LOG(" map %llu", (unsigned long long)*(uint64_t *)params[i]);
    else if (parameter(function, i) == 4) LOG(" %d", *(int32_t *)params[i]);
    else LOG(" %lld", (long long)*(int64_t *)params[i]);
  LOG("\n");
  return 0;
}
struct attribute { int id, pad, value, rest[15]; };
struct config { unsigned grid[3], block[3], shared; void *stream; struct attribute *attributes; unsigned count; };
int cuLaunchKernelEx(const struct config *config, const char *function, void **params, void **extra) {
  const unsigned *grid = config->grid, *block = config->block;
  for (unsigned i = 0; i < config->count; i++) LOG("with %d = %d: ", config->attributes[i].id, config->attributes[i].value);
  return cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2], config->shared, config->stream,
                        params, extra);
}
