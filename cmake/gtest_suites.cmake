# A ctest for each suite of a GoogleTest program: a process for each of 900 small tests would take
# longer to start than to run. Suites that take long get one for each test (EACH, a regular
# expression), so that the machine's cores share them. The program says which tests it has when
# ctest runs, and again only after it was built anew.
#
#   pelton_add_suites(server_test server. TIMEOUT 300 ENVIRONMENT "A=B" EACH "^Golden")
function(pelton_add_suites target prefix)
  cmake_parse_arguments(SUITES "" "TIMEOUT;ENVIRONMENT;EACH" "" ${ARGN})
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  file(GENERATE OUTPUT ${script} CONTENT "
set(program \"$<TARGET_FILE:${target}>\")
set(prefix \"${prefix}\")
set(timeout \"${SUITES_TIMEOUT}\")
set(environment \"${SUITES_ENVIRONMENT}\")
set(each \"${SUITES_EACH}\")
include(\"${PROJECT_SOURCE_DIR}/cmake/gtest_suites_of_program.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()
