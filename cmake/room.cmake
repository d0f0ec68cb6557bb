# A room is a folder is a namespace is a target.
#
#   pelton_room(kv DEPS base LIBS fmt::fmt)
#
# makes the library pelton_kv from every x.cc of the folder (and of the folders named in SUBDIRS) and,
# from the files that stand beside them,
#   x_test.cc   -> one test program  kv_test    (GoogleTest; each suite is a ctest, each test of the
#                                                suites that EACH_TEST, a regular expression, matches)
#   x_bench.cc  -> one program       kv_bench   (Google Benchmark; ctest runs each function once)
#   x_fuzz.cc   -> a program each    kv_x_fuzz  (libFuzzer in the preset "fuzz", otherwise a
#                  replayer of the corpus src/kv/testdata/x_fuzz/ plus bounded random input)
# Files whose paths match WITHOUT, a regular expression, are left out: those for other processors. Those that match ALONE
# have flags of their own.
include(${CMAKE_CURRENT_LIST_DIR}/gtest_suites.cmake)

# How many sources the compiler may read at once (batches.py); with 1 each is compiled by itself.
set(PELTON_BATCH 8 CACHE STRING "Sources that are compiled together, at most")
if(PELTON_BATCH GREATER 1)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  # Itself, not a script that looks for one: it is asked two hundred times.
  execute_process(COMMAND ${Python3_EXECUTABLE} -c "import sys; print(sys.executable)"
                  OUTPUT_VARIABLE PELTON_BATCH_PYTHON OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
# In `made`, what is to be compiled in place of `FILES`. The batches stand in `folder` below the build's, and name what
# they include as seen from `root`, an include folder.
function(pelton_batches made folder root alone) # FILES...
  set(files ${ARGN})
  set(singly)
  if(alone)
    set(singly ${files})
    list(FILTER singly INCLUDE REGEX "${alone}")
    list(FILTER files EXCLUDE REGEX "${alone}")
  endif()
  list(LENGTH files number)
  if(PELTON_BATCH GREATER 1 AND number GREATER 1)
    execute_process(COMMAND ${PELTON_BATCH_PYTHON} -I -S ${PROJECT_SOURCE_DIR}/cmake/batches.py
                            ${root} ${CMAKE_CURRENT_BINARY_DIR}/${folder} ${PELTON_BATCH} ${files}
                    OUTPUT_VARIABLE files OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "\n" ";" files "${files}")
  endif()
  set(${made} ${files} ${singly} PARENT_SCOPE)
endfunction()

# Where the tree and its build lie, for those of `files` that ask, themselves or by a header of tests: an
# absolute path in a command makes a compiler cache useless in every other checkout.
set(PELTON_FOLDER_MACROS "PELTON_(SOURCE|BINARY)_DIR")
file(GLOB headers ${PROJECT_SOURCE_DIR}/src/*/*.h)
foreach(header ${headers})
  file(STRINGS ${header} asks REGEX "${PELTON_FOLDER_MACROS}" LIMIT_COUNT 1)
  if(asks)
    get_filename_component(name ${header} NAME)
    string(APPEND PELTON_FOLDER_MACROS "|/${name}\"")
  endif()
endforeach()
function(pelton_asking_folders asking) # FILES...
  set(found)
  foreach(file ${ARGN})
    file(STRINGS ${file} asks REGEX "${PELTON_FOLDER_MACROS}" LIMIT_COUNT 1)
    if(asks)
      list(APPEND found ${file})
    endif()
  endforeach()
  set(${asking} ${found} PARENT_SCOPE)
endfunction()
function(pelton_define_folders) # FILES...
  if(NOT ARGN)
    return()
  endif()
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_DEFINITIONS
               PELTON_SOURCE_DIR="${PROJECT_SOURCE_DIR}" PELTON_BINARY_DIR="${CMAKE_BINARY_DIR}")
endfunction()
# The same of tests: those that ask for folders are in batches of their own.
function(pelton_test_batches made root alone) # FILES...
  set(others ${ARGN})
  pelton_asking_folders(asking ${others})
  list(REMOVE_ITEM others ${asking})
  pelton_batches(others test_batches ${root} "${alone}" ${others})
  pelton_batches(asking asking_batches ${root} "${alone}" ${asking})
  pelton_define_folders(${asking})
  set(${made} ${others} ${asking} PARENT_SCOPE)
endfunction()

function(pelton_room room)
  cmake_parse_arguments(ROOM "" "EACH_TEST;WITHOUT;ALONE" "DEPS;LIBS;TEST_DEPS;SUBDIRS" ${ARGN})
  set(sources)
  set(tests)
  set(benches)
  set(fuzzers)
  foreach(folder . ${ROOM_SUBDIRS})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
    if(ROOM_WITHOUT)
      list(FILTER found EXCLUDE REGEX "${ROOM_WITHOUT}")
    endif()
    foreach(file ${found})
      if(file MATCHES "_test\\.cc$")
        list(APPEND tests ${file})
      elseif(file MATCHES "_bench\\.cc$")
        list(APPEND benches ${file})
      elseif(file MATCHES "_fuzz\\.cc$")
        list(APPEND fuzzers ${file})
      else()
        list(APPEND sources ${file})
      endif()
    endforeach()
  endforeach()

  pelton_batches(sources batches ${PROJECT_SOURCE_DIR}/src "${ROOM_ALONE}" ${sources})

  list(TRANSFORM ROOM_DEPS PREPEND pelton_)
  list(TRANSFORM ROOM_TEST_DEPS PREPEND pelton_)
  if(sources)
    add_library(pelton_${room} STATIC ${sources})
    target_include_directories(pelton_${room} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(pelton_${room} PUBLIC ${ROOM_DEPS} PRIVATE ${ROOM_LIBS} Threads::Threads)
  else()
    add_library(pelton_${room} INTERFACE)
    target_include_directories(pelton_${room} INTERFACE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(pelton_${room} INTERFACE ${ROOM_DEPS})
  endif()

  if(NOT PELTON_TESTS)
    return()
  endif()
  if(tests AND NOT PELTON_FUZZ)
    pelton_test_batches(tests ${PROJECT_SOURCE_DIR}/src "${ROOM_ALONE}" ${tests})
    add_executable(${room}_test ${tests})
    if(CMAKE_BUILD_TYPE STREQUAL Release AND NOT PELTON_SANITIZE)
      # Half the time to compile; what is tested keeps its -O3.
      set_source_files_properties(${tests} PROPERTIES COMPILE_OPTIONS -O1)
    endif()
    target_link_libraries(${room}_test PRIVATE pelton_${room} ${ROOM_TEST_DEPS} ${ROOM_LIBS}
                          GTest::gmock GTest::gtest_main)
    pelton_add_suites(${room}_test ${room}. TIMEOUT ${PELTON_TEST_SECONDS} ENVIRONMENT "${PELTON_TEST_ENVIRONMENT}"
                      EACH "${ROOM_EACH_TEST}")
  endif()
  if(benches AND NOT PELTON_FUZZ AND NOT PELTON_SANITIZE)
    add_executable(${room}_bench ${benches})
    target_link_libraries(${room}_bench PRIVATE pelton_${room} ${ROOM_TEST_DEPS} ${ROOM_LIBS}
                          benchmark::benchmark_main)
    pelton_asking_folders(benches ${benches})
    pelton_define_folders(${benches})
    add_test(NAME ${room}.bench_runs COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/bench_once.py
                                             $<TARGET_FILE:${room}_bench>)
  endif()
  foreach(file ${fuzzers})
    get_filename_component(name ${file} NAME_WE)
    set(target ${room}_${name})
    set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/testdata/${name})
    add_executable(${target} ${file})
    target_link_libraries(${target} PRIVATE pelton_${room} ${ROOM_TEST_DEPS} ${ROOM_LIBS})
    pelton_asking_folders(asking ${file})
    pelton_define_folders(${asking})
    if(PELTON_FUZZ)
      target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    else()
      target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz_replay.cc)
      add_test(NAME ${room}.${name}_replay COMMAND ${target} ${corpus})
    endif()
  endforeach()
endfunction()
