# find_package(gradring) gives gradring::gradring. The library's own dependencies are private to it.
include(${CMAKE_CURRENT_LIST_DIR}/gradring-targets.cmake)
