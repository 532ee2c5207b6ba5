/* What libtapestry_mpi.so gives to the program that opens it. The module alone is compiled against
 * mpi.h and linked to MPI: the program runs where there is none, and knows no implementation's
 * types. */
#ifndef TAPESTRY_CORE_DISTRIBUTED_MPI_MODULE_H_
#define TAPESTRY_CORE_DISTRIBUTED_MPI_MODULE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TAPESTRY_MPI_VERSION 1
#define TAPESTRY_MPI_TABLE "tapestry_mpi_table"

/* Functions that return an int return 0, or an error for message(). All but end_job are called by
 * one thread. */
struct TapestryMpi {
  int version; /* TAPESTRY_MPI_VERSION */

  /* Starts MPI, if nobody did, for one thread that calls it. */
  int (*start)(int* rank, int* size);
  int (*finish)(void);
  void (*end_job)(int code);

  /* Texts of at most `bytes` bytes, the 0 at the end included. */
  void (*host)(char* text, int bytes);
  void (*library)(char* text, int bytes);
  void (*message)(int error, char* text, int bytes);

  /* A request is given back by the call of test() that finds it done. `got` is the number of bytes
   * of a message that came; of one that went it is meaningless. */
  int (*send)(int to, int tag, const void* data, int64_t bytes, void** request);
  int (*receive)(int from, int tag, void* data, int64_t bytes, void** request);
  int (*test)(void* request, int* done, int64_t* got);
};

#ifdef __cplusplus
}
#endif

#endif
