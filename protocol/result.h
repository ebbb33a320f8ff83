// Result: the value, or an operating fault as a person should read it.
//
// Outcomes of transactions are ordinary values, never a Result. Broken contracts are assertions
// (see check.h). Exceptions are thrown only while a program starts up.
#pragma once

#include <boost/system/result.hpp>
#include <stdexcept>
#include <string>

namespace twofold {

enum class Fault {
  invalid,      // malformed input: what was given can never be accepted
  not_found,    // something that must exist does not
  exists,       // something that must not exist does
  busy,         // in use by another process, try again later
  damaged,      // stored data does not check
  unsupported,  // a version or kind that this build does not know
  full,         // no room: certainly not written
  io,           // the operating system said no; the message has its words
  closed,       // the peer is gone
  timeout,
  outdated,  // others have gone on from a newer copy of this log
};

struct Error {
  Fault fault = Fault::io;
  std::string message;  // what happened, to what, and what to do next; no trailing full stop
};

template <class T>
using Result = boost::system::result<T, Error>;

// Called by Result::value() when there is none.
[[noreturn]] inline void throw_exception_from_error(const Error& error,
                                                    const boost::source_location&) {
  throw std::runtime_error(error.message);
}

}  // namespace twofold
