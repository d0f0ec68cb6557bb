# Included by ctest; cmake/gtest_suites.cmake says what for. In: program, prefix, timeout,
# environment, each.
if(NOT EXISTS "${program}")
  get_filename_component(name "${program}" NAME)
  add_test("${prefix}NOT_BUILT" "${name}")  # fails: there is no such program
  return()
endif()

if(NOT "$ENV{PELTON_FULL}" STREQUAL "" AND timeout)
  math(EXPR timeout "6 * ${timeout}")  # its long runs: GptOssFarOut takes 13 minutes on a busy machine
endif()

set(listed "${program}.tests")
if(NOT EXISTS "${listed}" OR "${program}" IS_NEWER_THAN "${listed}")
  execute_process(COMMAND "${program}" --gtest_list_tests OUTPUT_FILE "${listed}" RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${program} --gtest_list_tests: ${failed}")
  endif()
endif()

macro(pelton_add_gtest name filter)
  add_test("${prefix}${name}" "${program}" "--gtest_filter=${filter}")
  set(properties TIMEOUT "${timeout}" ${ARGN})
  if(environment)
    list(APPEND properties ENVIRONMENT "${environment}")
  endif()
  set_tests_properties("${prefix}${name}" PROPERTIES ${properties})
endmacro()

# "Suite." and below it, indented, its tests; a parameter's value follows behind a '#'.
file(STRINGS "${listed}" lines)
set(suite "")
foreach(line IN LISTS lines)
  string(REGEX REPLACE " *#.*$" "" line "${line}")
  if(line MATCHES "^[^ ].*\\.$")
    string(REGEX REPLACE "\\.$" "" suite "${line}")
    if(NOT (each AND suite MATCHES "${each}"))
      pelton_add_gtest("${suite}" "${suite}.*")
    endif()
  elseif(suite AND line MATCHES "^ " AND each AND suite MATCHES "${each}")
    string(STRIP "${line}" test)
    if(NOT test MATCHES "^DISABLED_")
      pelton_add_gtest("${suite}.${test}" "${suite}.${test}" SKIP_REGULAR_EXPRESSION
                       "  SKIPPED ")
    endif()
  endif()
endforeach()
