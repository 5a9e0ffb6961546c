#pragma once

namespace gradring::python {

// From now on people hear of ranks that a job or a group waits for while it forms, each so many
// seconds; 0: never.
void watch_forming(double seconds);

// What there is to be told, by any thread that waits and has the interpreter's lock: the one that
// the library tells it to has not.
void tell_of_forming();

}  // namespace gradring::python
