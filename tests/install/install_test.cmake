# Installs a build into an empty prefix, builds the example against it and runs it, as a user would:
#   cmake -DBUILD=<build> -DSCRATCH=<folder> -DGENERATOR=Ninja [-DOPTIONS=<for the example>] -P ...
set(prefix ${SCRATCH}/prefix)
file(REMOVE_RECURSE ${prefix} ${SCRATCH}/build)
foreach(command
    "${CMAKE_COMMAND};--install;${BUILD};--prefix;${prefix}"
    "${CMAKE_COMMAND};-G;${GENERATOR};-S;${CMAKE_CURRENT_LIST_DIR};-B;${SCRATCH}/build;-DCMAKE_PREFIX_PATH=${prefix};${OPTIONS}"
    "${CMAKE_COMMAND};--build;${SCRATCH}/build"
    "${SCRATCH}/build/example"
    "${prefix}/bin/tapestry;--version"
    "${prefix}/bin/tapestry;inspect;${prefix}/share/tapestry/configs/shakespeare_char.yaml")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endforeach()
