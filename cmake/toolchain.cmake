# Compiler settings that hold for every room: warnings, sanitizers, ccache, linker.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
# False alarms of g++ 12 at -O3: about fmt 9, and about "literal" + std::string.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-stringop-overflow -Wno-array-bounds -Wno-restrict)
endif()
if(PELTON_WERROR)
  add_compile_options(-Werror)
endif()
# Contraction of a*b+c into one rounding would make a result depend on how the compiler vectorised a
# loop; kernels that want an FMA say so. (Batch invariance, docs/decisions/0004.)
add_compile_options(-ffp-contract=off -fno-math-errno)
# On Arm char has no sign; with the one that it has on x86-64, no comparison of text differs.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  add_compile_options(-fsigned-char)
endif()

# What a test may take; under a sanitizer all is slower.
set(PELTON_SLOWNESS 1)
if(PELTON_SANITIZE)
  set(PELTON_SLOWNESS 6)
endif()
math(EXPR PELTON_TEST_SECONDS "300 * ${PELTON_SLOWNESS}")

if(PELTON_SANITIZE STREQUAL "address")
  # Of every test, as ctest runs it.
  set(PELTON_TEST_ENVIRONMENT "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/leaks.supp")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options(-D__SANITIZE_ADDRESS__=1) # as g++ says; clang does not
  endif()
elseif(PELTON_SANITIZE STREQUAL "thread")
  set(PELTON_TEST_ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/races.supp")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options(-D__SANITIZE_THREAD__=1)
  endif()
endif()

find_program(PELTON_CCACHE ccache)
if(PELTON_CCACHE)
  # Relative to the checkout, so that a fresh clone finds what another one has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
                                  CCACHE_NOHASHDIR=1 ${PELTON_CCACHE})
else()
  # As ccache has it: files are called the same in whatever folder they are compiled.
  add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=../..)
endif()
find_program(PELTON_MOLD mold)
if(PELTON_MOLD AND NOT PELTON_FUZZ AND NOT CMAKE_CROSSCOMPILING) # the cross compiler does not find it
  add_link_options(-fuse-ld=mold)
endif()
