#pragma once

/// Marks functions that both backends compile.
#ifdef __CUDACC__
#define TAPESTRY_HOST_DEVICE __host__ __device__
#else
#define TAPESTRY_HOST_DEVICE
#endif
