#pragma once

#include <nanobind/nanobind.h>

namespace gradring::python {

// The enumerations of gradring.h, under the names that they have there.
void define_numbers(nanobind::module_& m);

}  // namespace gradring::python
