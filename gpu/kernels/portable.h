/* One kernel source, two languages: CUDA C++ (NVRTC, nvcc) and OpenCL C 1.2.
 *
 * A kernel file includes this header once and then uses only these names, plain C and pointers to complete arrays. The
 * driver (gpu/driver.py) inlines this header in place of the #include, so no compiler searches for files, and defines:
 *   WORD_BITS  32 or 64: how wide a key word is
 *   GROUP      work items per group (CUDA: threads per block); the launch must use exactly this number
 *   ITEMS      rows per work item
 * Limits: one dimension; at most 2^31 rows, so that positions and sums of two positions fit 32 bits. OpenCL 1.2 has no
 * generic pointers: a helper that reads both global and shared memory is written once as a macro (see bisort_merger).
 */

#if defined(__OPENCL_VERSION__)
#define KERNEL __kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
#define HELPER static inline
#define GLOBAL __global
#define LOCAL __local
#define SHARED __local
#define RESTRICT restrict
#define GROUP_ID ((U32)get_group_id(0))
#define LOCAL_ID ITEM_ID((U32)get_local_id(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
typedef ulong U64;
#else
#define KERNEL extern "C" __global__ void __launch_bounds__(GROUP)
#define HELPER static __device__ __forceinline__
#define GLOBAL
#define LOCAL
#define SHARED __shared__
#define RESTRICT __restrict__
#define GROUP_ID ((U32)blockIdx.x)
#define LOCAL_ID ITEM_ID((U32)threadIdx.x)
#define BARRIER() __syncthreads()
typedef unsigned long long U64;
#endif

/* OpenCL does not say which items of a group form a subgroup: with SUBGROUP_SEARCH items are numbered by subgroup, which
 * is as good a numbering, because an item's number only decides which rows it processes. */
#if defined(SUBGROUP_SEARCH)
#define ITEM_ID(id) ((U32)get_sub_group_id() * (U32)get_max_sub_group_size() + (U32)get_sub_group_local_id())
#else
#define ITEM_ID(id) (id)
#endif

#if defined(__CUDA_ARCH__)
#define ROLLED _Pragma("unroll 1") /* before a loop: unrolling it would cost registers */
#else
#define ROLLED
#endif

typedef unsigned short U16;
typedef unsigned int U32;

#if WORD_BITS == 32
typedef U32 WORD;
#elif WORD_BITS == 64
typedef U64 WORD;
#else
#error "WORD_BITS must be 32 or 64"
#endif
