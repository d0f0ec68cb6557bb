# Compiles on Debian for 64-bit Arm: Debian's cross compiler, the libraries that tools/arm64_sysroot has laid out, and
# the build's own programs (protoc, esbuild, Python) from this machine. Of the preset arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

if(DEFINED ENV{PELTON_ARM64_SYSROOT})
  set(folder $ENV{PELTON_ARM64_SYSROOT})
else()
  set(folder $ENV{HOME}/.cache/pelton/arm64)
endif()
set(CMAKE_FIND_ROOT_PATH ${folder})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${folder})
set(ENV{PKG_CONFIG_LIBDIR} ${folder}/usr/lib/aarch64-linux-gnu/pkgconfig:${folder}/usr/share/pkgconfig)

# The C library is the cross compiler's own, so the folder is no --sysroot.
set(CMAKE_CXX_FLAGS_INIT "-isystem ${folder}/usr/include -isystem ${folder}/usr/include/aarch64-linux-gnu")
set(libraries ${folder}/usr/lib/aarch64-linux-gnu ${folder}/lib/aarch64-linux-gnu)
list(JOIN libraries " -L" searched)
list(JOIN libraries ":" needed_by_others)
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-L${searched} -Wl,-rpath-link,${needed_by_others}")
endforeach()
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${folder})
