// Policies written in Python: the engine's questions put to them, and jobs as they may see them.
#pragma once

#include <nanobind/nanobind.h>

namespace trimtab {

void bind_python_policies(nanobind::module_& module);

}  // namespace trimtab
