# Writes the commit of the sources as C++: cmake -DSOURCE=<checkout> -DOUTPUT=<file> -P commit.cmake.
# The file keeps its time while the commit stays, so that nothing is built again.
set(commit unknown)
find_package(Git QUIET)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --exclude=* --abbrev=7
                  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE answer RESULT_VARIABLE status
                  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(status EQUAL 0)
    set(commit ${answer})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
namespace tapestry {
extern const char* const kCommit;
const char* const kCommit = "@commit@";
}  // namespace tapestry
]] @ONLY)
