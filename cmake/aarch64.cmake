# Cross-compiles for AArch64 against a Debian root of that architecture (DDL_SYSROOT; ./dev test-aarch64 makes one), and
# runs what it built under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DDL_SYSROOT)
set(CMAKE_SYSROOT ${DDL_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${DDL_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${DDL_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${DDL_SYSROOT}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${DDL_SYSROOT})
