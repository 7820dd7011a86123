# Runs PROGRAM over the same seeds in two processes: both must say the same, the
# hash over all events included. (Hash tables of one process are in one order;
# those of two are not.)
foreach(run 1 2)
  execute_process(
    COMMAND ${PROGRAM} --count=24 --verbose
    OUTPUT_VARIABLE said_${run}
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${PROGRAM} ended with ${status}:\n${said_${run}}")
  endif()
endforeach()
if(NOT said_1 STREQUAL said_2)
  message(FATAL_ERROR "one seed, two schedules:\n${said_1}\nand\n${said_2}")
endif()
