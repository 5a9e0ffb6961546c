# Switches of the build, and the flags every target of ours is compiled with.
option(GRADRING_TESTS "Build the tests and the simulator" ON)
option(GRADRING_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(GRADRING_CUDA "Build the GPU engines (needs the CUDA toolkit)" OFF)
option(GRADRING_PYTHON "Build the Python package's library and nothing else (pip does)" OFF)
set(GRADRING_SANITIZE "" CACHE STRING "address (with undefined), thread, or empty")

add_library(gradring_flags INTERFACE)
target_include_directories(gradring_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(gradring_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX,C>:-Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor>
  # g++ 12 sees overlaps in std::string::operator+ that are not there (GCC bug 105651).
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
  # nvcc's own warnings, and those of the host compiler behind it.
  $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror,-Wshadow,-Wnon-virtual-dtor>)
if(GRADRING_SANITIZE AND GRADRING_CUDA)
  message(FATAL_ERROR "GRADRING_SANITIZE and GRADRING_CUDA do not go together: nvcc has no sanitizers")
elseif(GRADRING_SANITIZE)
  # Half the time to compile of -O2 -g, and the tests run no slower.
  add_compile_options(-O1 -g1)
  # A quarter of the time of the default linker, for a hundred programs.
  find_program(LLD ld.lld)
  if(LLD AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_link_options(-fuse-ld=lld)
  endif()
endif()
if(GRADRING_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # A program in C that links our library needs the C++ part of the sanitizers as well.
    add_link_options(-fsanitize-link-c++-runtime -lstdc++)
  endif()
elseif(GRADRING_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
elseif(NOT GRADRING_SANITIZE STREQUAL "")
  message(FATAL_ERROR "GRADRING_SANITIZE is '${GRADRING_SANITIZE}'; use address, thread, or leave it empty")
endif()

# With sanitizers: for code that takes longer to optimise than it then saves, and for what protoc
# writes, where to optimise UBSan's checks of each pointer takes clang minutes. ASan looks at both.
set(GRADRING_COLD_OPTIONS "")
set(GRADRING_GENERATED_OPTIONS "")
if(GRADRING_SANITIZE)
  set(GRADRING_COLD_OPTIONS -O0)
  set(GRADRING_GENERATED_OPTIONS -O0 -fno-sanitize=undefined)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
