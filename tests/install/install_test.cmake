# Installs a build into an empty prefix, builds the examples against it and runs them, as a user would:
#   cmake -DBUILD=<build> -DSCRATCH=<folder> -DGENERATOR=Ninja -DTINY_TASKS=<program>
#         [-DOPTIONS=<for the examples>] -P ...
set(prefix ${SCRATCH}/prefix)
set(runs ${SCRATCH}/runs)
set(tapestry ${prefix}/bin/tapestry)
file(REMOVE_RECURSE ${prefix} ${SCRATCH}/build ${runs})
foreach(command
    "${CMAKE_COMMAND};--install;${BUILD};--prefix;${prefix}"
    "${CMAKE_COMMAND};-G;${GENERATOR};-S;${CMAKE_CURRENT_LIST_DIR};-B;${SCRATCH}/build;-DCMAKE_PREFIX_PATH=${prefix};${OPTIONS}"
    "${CMAKE_COMMAND};--build;${SCRATCH}/build"
    "${SCRATCH}/build/example"
    "${tapestry};--version"
    "${tapestry};inspect;${prefix}/share/tapestry/configs/shakespeare_char.yaml"
    "${TINY_TASKS};${runs}")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDOUT)
endforeach()

# A program of the user's answers as the commands do. `output` = what a command prints for `input`.
function(run output input)
  execute_process(COMMAND ${ARGN} INPUT_FILE ${input} OUTPUT_VARIABLE text WORKING_DIRECTORY ${runs}
                  COMMAND_ERROR_IS_FATAL ANY)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()
foreach(task translation clm)
  run(_ /dev/null ${tapestry} train ${task}.yaml output_dir=${task} generation.do_sample=false
      generation.min_new_tokens=2)  # a line without a text has no score
  run(ours ${runs}/valid.src ${SCRATCH}/build/answers ${task})
  if(task STREQUAL translation)
    run(texts ${runs}/valid.src ${tapestry} translate --model ${task})
    file(WRITE ${runs}/texts "${texts}")
    run(scores ${runs}/texts ${tapestry} score --model ${task} --source valid.src --target -)
  else()
    run(texts ${runs}/valid.src ${tapestry} generate --model ${task})
    file(WRITE ${runs}/texts "${texts}")
    run(scores ${runs}/texts ${tapestry} score --model ${task} --target -)
  endif()
  if(NOT ours STREQUAL "${texts}${scores}" OR texts STREQUAL "")
    message(FATAL_ERROR "The library answers\n${ours}\nthe commands\n${texts}${scores}")
  endif()
endforeach()
