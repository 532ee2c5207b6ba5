/* MPI's point-to-point messages as a table of functions: see mpi_module.h. */
#include "core/distributed/mpi_module.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* Messages of our own, apart from those of a library that uses MPI, too. */
static MPI_Comm world = MPI_COMM_NULL;

static int start(int* rank, int* size) {
  int started = 0, error = MPI_Initialized(&started);
  if (error == MPI_SUCCESS && !started) {
    int level = 0;
    error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
  }
  if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &world);
  if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  if (error == MPI_SUCCESS) error = MPI_Comm_rank(world, rank);
  if (error == MPI_SUCCESS) error = MPI_Comm_size(world, size);
  return error;
}

static int finish(void) {
  int error = MPI_Comm_free(&world);
  return error == MPI_SUCCESS ? MPI_Finalize() : error;
}

static void end_job(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

static void copy(char* to, int bytes, const char* from) {
  strncpy(to, from, (size_t)bytes);
  to[bytes - 1] = 0;
}

static void host(char* text, int bytes) {
  char name[MPI_MAX_PROCESSOR_NAME + 1] = {0};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  copy(text, bytes, name);
}

static void library(char* text, int bytes) {
  static char name[MPI_MAX_LIBRARY_VERSION_STRING + 1];
  int length = 0;
  MPI_Get_library_version(name, &length);
  copy(text, bytes, name);
}

static void message(int error, char* text, int bytes) {
  char name[MPI_MAX_ERROR_STRING + 1] = {0};
  int length = 0;
  MPI_Error_string(error, name, &length);
  copy(text, bytes, name);
}

static int begun(int error, MPI_Request* request, void** result) {
  if (error == MPI_SUCCESS) {
    *result = request;
  } else {
    free(request);
  }
  return error;
}

static int send_bytes(int to, int tag, const void* data, int64_t bytes, void** request) {
  MPI_Request* own = malloc(sizeof *own);
  if (own == NULL) return MPI_ERR_NO_MEM;
  return begun(MPI_Isend(data, (int)bytes, MPI_BYTE, to, tag, world, own), own, request);
}

static int receive_bytes(int from, int tag, void* data, int64_t bytes, void** request) {
  MPI_Request* own = malloc(sizeof *own);
  if (own == NULL) return MPI_ERR_NO_MEM;
  return begun(MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, world, own), own, request);
}

static int test(void* request, int* done, int64_t* got) {
  MPI_Status status;
  int count = 0, error = MPI_Test((MPI_Request*)request, done, &status);
  if (error != MPI_SUCCESS || !*done) return error;
  free(request);
  error = MPI_Get_count(&status, MPI_BYTE, &count);
  *got = count;
  return error;
}

const struct TapestryMpi tapestry_mpi_table = {
    TAPESTRY_MPI_VERSION, start,   finish,     end_job,       host,
    library,              message, send_bytes, receive_bytes, test,
};
