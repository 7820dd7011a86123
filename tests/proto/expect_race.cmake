# Runs PROGRAM and passes only if ThreadSanitizer ended it with a report of a
# data race in RacingWrites. A crash, another report, or a clean exit fails.
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE result
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "the race went unreported:\n${output}")
endif()
if(NOT output MATCHES "WARNING: ThreadSanitizer: data race" OR
   NOT output MATCHES "SUMMARY: ThreadSanitizer: data race[^\n]*RacingWrites")
  message(FATAL_ERROR "ended with ${result}, but not by a report of the "
                      "race:\n${output}")
endif()
