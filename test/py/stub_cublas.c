// cuBLASLt without a GPU: products of column-major matrices in the host's memory, as its documentation has them.
//
// D = alpha·op(A)·op(B) + beta·C, accumulated in the compute type and rounded once. It refuses what the documentation
// does not allow, and notes what it was told. Memory for the matrices lies where the stub of the driver has a GPU's.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { OK = 0, INVALID = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_64F = 1, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_64F = 70 };
enum { MAGIC = 0x5eed, ALGORITHMS = 2 };

struct operation { int compute, scale; int32_t turn_a, turn_b; };
struct layout { int type; uint64_t rows, columns; int64_t leading, apart; int32_t count; };
struct preference { uint64_t workspace; uint32_t schemes, alignment[4]; };
struct result { uint64_t algorithm[8]; size_t workspace; int status; float waves; int reserved[4]; };

static char log_text[1 << 16], failing[64];
static int status_of_failure, handles, living;
static size_t wanted_workspace;
static uint64_t version = 120804;

#define CHECK(name) if (!strcmp(failing, name)) return status_of_failure
#ifdef QUIET
#define LOG(...)
#else
#define LOG(...) do { \
    pthread_mutex_lock(&writing); \
    snprintf(log_text + strlen(log_text), sizeof log_text - strlen(log_text), __VA_ARGS__); \
    pthread_mutex_unlock(&writing); \
  } while (0)
#endif
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

const char *blas_log(void) { return log_text; }
int blas_living(void) { return living; }
void blas_reset(const char *name, int status, size_t workspace) {
  log_text[0] = 0;
  snprintf(failing, sizeof failing, "%s", name);
  status_of_failure = status;
  wanted_workspace = workspace;
}
void *blas_memory(size_t size) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  for (uint64_t at = 1ull << 36; at < 1ull << 37; at += 1ull << 30) {
    void *memory = mmap((void *)at, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory != MAP_FAILED) return memory;
  }
  return 0;
}

size_t cublasLtGetVersion(void) {
#ifdef OLD
  return 111103;
#endif
  return version;
}
int cublasLtCreate(void **handle) {
  CHECK("cublasLtCreate");
  *handle = (void *)(uintptr_t)(1000 + handles++);
  LOG("create\n");
  return OK;
}
static void *fresh(size_t size) { __atomic_add_fetch(&living, 1, __ATOMIC_SEQ_CST); return calloc(1, size); }
static int gone(void *object) { __atomic_sub_fetch(&living, 1, __ATOMIC_SEQ_CST); free(object); return OK; }

int cublasLtMatmulDescCreate(struct operation **made, int compute, int scale) {
  CHECK("cublasLtMatmulDescCreate");
  *made = fresh(sizeof **made);
  **made = (struct operation){compute, scale, 0, 0};
  return OK;
}
int cublasLtMatmulDescDestroy(struct operation *made) { return gone(made); }
int cublasLtMatmulDescSetAttribute(struct operation *made, int attribute, const void *value, size_t size) {
  CHECK("cublasLtMatmulDescSetAttribute");
  if (size != 4 || (attribute != 3 && attribute != 4)) return INVALID;
  memcpy(attribute == 3 ? &made->turn_a : &made->turn_b, value, 4);
  return OK;
}
int cublasLtMatrixLayoutCreate(struct layout **made, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  CHECK("cublasLtMatrixLayoutCreate");
  if (!rows || !columns || leading < (int64_t)rows) return INVALID;
  *made = fresh(sizeof **made);
  **made = (struct layout){type, rows, columns, leading, 0, 1};
  return OK;
}
int cublasLtMatrixLayoutDestroy(struct layout *made) { return gone(made); }
int cublasLtMatrixLayoutSetAttribute(struct layout *made, int attribute, const void *value, size_t size) {
  CHECK("cublasLtMatrixLayoutSetAttribute");
  if (attribute == 5 && size == 4) memcpy(&made->count, value, 4);
  else if (attribute == 6 && size == 8) memcpy(&made->apart, value, 8);
  else return INVALID;
  return OK;
}
int cublasLtMatmulPreferenceCreate(struct preference **made) {
  CHECK("cublasLtMatmulPreferenceCreate");
  *made = fresh(sizeof **made);
  **made = (struct preference){0, 7, {256, 256, 256, 256}};
  return OK;
}
int cublasLtMatmulPreferenceDestroy(struct preference *made) { return gone(made); }
int cublasLtMatmulPreferenceSetAttribute(struct preference *made, int attribute, const void *value, size_t size) {
  CHECK("cublasLtMatmulPreferenceSetAttribute");
  if (attribute == 1 && size == 8) memcpy(&made->workspace, value, 8);
  else if (attribute == 3 && size == 4) memcpy(&made->schemes, value, 4);
  else if (attribute >= 5 && attribute <= 8 && size == 4) memcpy(&made->alignment[attribute - 5], value, 4);
  else return INVALID;
  return OK;
}

// The shape of op(X), and whether three layouts are those of a product that the compute type has.
static uint64_t rows(const struct layout *x, int turned) { return turned ? x->columns : x->rows; }
static uint64_t columns(const struct layout *x, int turned) { return turned ? x->rows : x->columns; }
static int problem(const struct operation *op, const struct layout *a, const struct layout *b, const struct layout *c,
                   const struct layout *d) {
  if (rows(a, op->turn_a) != d->rows || columns(b, op->turn_b) != d->columns) return INVALID;
  if (columns(a, op->turn_a) != rows(b, op->turn_b) || c->rows != d->rows || c->columns != d->columns) return INVALID;
  if (a->count != b->count || a->count != d->count || c->count != d->count) return INVALID;
  if (a->type != b->type || c->type != d->type) return NOT_SUPPORTED;
  int wide = a->type == R_64F, narrow = a->type == R_16F || a->type == R_16BF;
  if (op->compute != (wide ? COMPUTE_64F : COMPUTE_32F) || op->scale != (wide ? R_64F : R_32F)) return NOT_SUPPORTED;
  return d->type == a->type || (narrow && d->type == R_32F) ? OK : NOT_SUPPORTED;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, const struct operation *op, const struct layout *a,
                                   const struct layout *b, const struct layout *c, const struct layout *d,
                                   const struct preference *wanted, int most, struct result *results, int *count) {
  CHECK("cublasLtMatmulAlgoGetHeuristic");
  *count = 0;
  int status = problem(op, a, b, c, d);
  if (status) return status;
  if (most < 1 || wanted->schemes != 2 || wanted->workspace < wanted_workspace) return INVALID;
  if (!strcmp(failing, "none")) return OK;
  for (*count = 0; *count < most && *count < ALGORITHMS; ++*count) {
    struct result *found = results + *count;
    *found = (struct result){{MAGIC, *count + 1}, wanted_workspace, OK, 1};
    for (int i = 0; i < 4; i++) found->algorithm[2 + i] = wanted->alignment[i];
  }
  LOG("choose\n");
  return OK;
}

static double number(const void *x, int type, int64_t at) {
  if (type == R_64F) return ((const double *)x)[at];
  if (type == R_32F) return ((const float *)x)[at];
  if (type == R_16F) return (double)((const _Float16 *)x)[at];
  uint32_t bits = (uint32_t)((const uint16_t *)x)[at] << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static void store(void *x, int type, int64_t at, double value) {
  float narrow = (float)value;
  uint32_t bits;
  memcpy(&bits, &narrow, 4);
  if (type == R_64F) ((double *)x)[at] = value;
  else if (type == R_32F) ((float *)x)[at] = narrow;
  else if (type == R_16F) ((_Float16 *)x)[at] = (_Float16)narrow;
  else if (narrow != narrow) ((uint16_t *)x)[at] = 0x7fc0;
  else ((uint16_t *)x)[at] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static double scalar(const void *x, int type) { return type == R_64F ? *(const double *)x : *(const float *)x; }

int cublasLtMatmul(void *handle, const struct operation *op, const void *alpha, const void *a, const struct layout *la,
                   const void *b, const struct layout *lb, const void *beta, const void *c, const struct layout *lc,
                   void *d, const struct layout *ld, const uint64_t *algorithm, void *workspace, size_t size,
                   void *stream) {
  CHECK("cublasLtMatmul");
  int status = problem(op, la, lb, lc, ld);
  if (status) return status;
  if (!algorithm || algorithm[0] != MAGIC || size < wanted_workspace) return INVALID;
  if (size && (!workspace || (uintptr_t)workspace % 256)) return INVALID;
  const void *all[] = {a, b, c, d};
  for (int i = 0; i < 4; i++) if ((uintptr_t)all[i] % algorithm[2 + i]) return INVALID;
#ifdef QUIET
  return OK;
#endif
  if (size) memset(workspace, 0xff, size);
  for (int batch = 0; batch < ld->count; batch++)
    for (uint64_t j = 0; j < ld->columns; j++)
      for (uint64_t i = 0; i < ld->rows; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < columns(la, op->turn_a); k++)
          sum += number(a, la->type, batch * la->apart + (op->turn_a ? k + i * la->leading : i + k * la->leading)) *
                 number(b, lb->type, batch * lb->apart + (op->turn_b ? j + k * lb->leading : k + j * lb->leading));
        double value = scalar(alpha, op->scale) * sum, factor = scalar(beta, op->scale);
        int64_t at = i + j * ld->leading;
        if (factor) value += factor * number(c, lc->type, batch * lc->apart + i + j * lc->leading);
        store(d, ld->type, batch * ld->apart + at, value);
      }
  LOG("product on %lu handle %lu of %lu x %lu x %lu, %d times, %c%c, %zu bytes, algorithm %lu\n", (unsigned long)(uintptr_t)stream,
      (unsigned long)(uintptr_t)handle, (unsigned long)ld->rows, (unsigned long)ld->columns,
      (unsigned long)columns(la, op->turn_a), ld->count, op->turn_a ? 'T' : 'N', op->turn_b ? 'T' : 'N', size,
      (unsigned long)algorithm[1]);
  return OK;
}
