#include "protocol/connection.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "protocol/check.h"
#include "protocol/convert.h"
#include "protocol/utf8.h"

namespace twofold {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using SystemError = boost::system::error_code;

constexpr std::size_t kPeerLimitMin = 64u << 10;  // accepted by every peer
constexpr std::size_t kReadBytes = 64u << 10;
constexpr std::size_t kIdleBufferBytesMax = 1u << 20;  // more is given back once written
constexpr std::size_t kFailureTextMax = 4096;
constexpr std::chrono::seconds kLingerMax{1};  // for a Failure to be taken
constexpr std::chrono::seconds kFlushMax{1};

enum class Written : std::uint8_t { all, blocked, broken };

bool would_block(const SystemError& ec) {
  return ec == asio::error::would_block || ec == asio::error::try_again;
}

std::string peer_of(const asio::ip::tcp::socket& socket) {
  SystemError ec;
  const auto endpoint = socket.remote_endpoint(ec);
  if (ec) return "a peer that has gone";
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + host + "]" : host) + ":" +
         std::to_string(endpoint.port());
}

// The number of the message that a Frame without a known body carries; 0: none.
std::uint32_t message_number(std::string_view payload) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(payload.data()),
                                            static_cast<int>(payload.size()));
  constexpr std::uint32_t kRequestTag = wire::Frame::kRequestFieldNumber << 3;
  std::uint32_t tag = in.ReadTag();
  for (std::uint64_t skipped = 0; tag == kRequestTag; tag = in.ReadTag()) in.ReadVarint64(&skipped);
  return tag >> 3;
}

std::string unknown_message_text(const wire::Frame& frame, std::string_view payload) {
  std::string text = "a frame with request " + std::to_string(frame.request());
  if (const std::uint32_t number = message_number(payload)) {
    text += " carries message " + std::to_string(number) + ", which is not known here";
  } else {
    text += " carries no message";
  }
  return text + ": both sides must speak protocol version " + std::to_string(kProtocolVersion) +
         " as wire.proto has it";
}

}  // namespace

struct Connection::State {
  enum class Phase : std::uint8_t {
    open,
    failing,  // a Failure is on its way out; whatever comes in is thrown away
    closed,
  };
  State(asio::ip::tcp::socket taken, ConnectionOptions chosen)
      : socket(std::move(taken)),
        timer(socket.get_executor()),
        options(chosen),
        reader(chosen.frame_bytes_max),
        peer(peer_of(socket)) {}

  // The connection that owns this state and is kept alive by whatever holds the returned pointer.
  std::shared_ptr<Connection> self() const { return owner->shared_from_this(); }

  void begin();
  void read();
  void on_readable(const SystemError& ec);
  void dispatch();
  void hand_out();
  void schedule_flush();
  void flush();
  Written write();
  void watch();
  void on_timer();
  void send_heartbeat();
  void finish(Error why);
  void schedule_tell();
  void tell();
  std::size_t unsent() const { return writing.size() - written + queued.size(); }

  Connection* owner = nullptr;
  asio::ip::tcp::socket socket;
  asio::steady_timer timer;
  ConnectionOptions options;
  // Shared, so that a handler may be replaced while it runs.
  std::shared_ptr<Handlers> handlers;
  Phase phase = Phase::open;
  Error reason;  // why it failed or closed
  bool told = false;
  bool held = false;

  FrameReader reader;
  wire::Frame frame;  // reused for every frame that arrives
  bool reading = false;
  Clock::time_point last_received = Clock::now();

  // Bytes go from `queued` to `writing` to the kernel; all that it has not taken is known at any
  // time.
  std::string queued, writing;
  std::size_t written = 0;  // of `writing`
  bool flush_scheduled = false;
  bool write_blocked = false;  // a wait for the socket to take more is under way
  bool write_broken = false;   // the peer takes no more; what it sent before may still be read
  std::size_t peer_limit = kPeerLimitMin;
  wire::Frame heartbeat;
  Clock::time_point last_sent = Clock::now();

  Clock::time_point linger_end;  // of Phase::failing
  Counters counters{};
  std::string peer;
};

// ---- reading
// ---------------------------------------------------------------------------------------

void Connection::State::begin() {
  last_received = last_sent = Clock::now();
  watch();
  read();
}

// Waits for bytes without holding a buffer for them: thousands of idle connections cost no memory.
void Connection::State::read() {
  if (reading || phase == Phase::closed || (held && phase == Phase::open)) return;
  reading = true;
  socket.async_wait(asio::ip::tcp::socket::wait_read, [this, keep = self()](const SystemError& ec) {
    reading = false;
    if (phase != Phase::closed) on_readable(ec);
  });
}

void Connection::State::on_readable(const SystemError& waited) {
  if (held && phase == Phase::open) return;
  thread_local std::array<char, kReadBytes> chunk;
  SystemError ec = waited;
  const std::size_t bytes = ec ? 0 : socket.read_some(asio::buffer(chunk), ec);
  if (ec && !would_block(ec)) {
    if (ec == asio::error::eof || ec == asio::error::connection_reset) {
      finish({Fault::closed, peer + " closed the connection"});
    } else {
      finish({Fault::io, "reading from " + peer + ": " + ec.message()});
    }
    return;
  }
  if (bytes > 0) {
    ++counters.reads;
    counters.bytes_in += bytes;
    last_received = Clock::now();
    if (phase == Phase::open) {
      reader.append({chunk.data(), bytes});
      dispatch();
    }
  }
  read();
}

void Connection::State::dispatch() {
  std::string_view payload;
  while (phase == Phase::open && !held && reader.next(payload)) {
    ++counters.frames_in;
    if (!parse_message(payload, frame)) {
      owner->fail(wire::FAILURE_CORRUPT,
                  "a frame of " + std::to_string(payload.size()) +
                      " bytes is not an encoded Frame, or a text in it is not UTF-8");
    } else if (frame.body_case() == wire::Frame::BODY_NOT_SET) {
      owner->fail(wire::FAILURE_UNKNOWN_MESSAGE, unknown_message_text(frame, payload));
    } else {
      hand_out();
    }
  }
  if (phase != Phase::open || held || reader.fault() == FrameFault::none) return;
  if (reader.fault() == FrameFault::too_large) {
    owner->fail(wire::FAILURE_TOO_LARGE,
                "a frame of " + std::to_string(reader.faulty_length()) +
                    " bytes was announced, and at most " + std::to_string(options.frame_bytes_max) +
                    " are accepted here: send less at once, or raise frame_bytes_max");
  } else {
    owner->fail(wire::FAILURE_CORRUPT,
                "a frame's checksum does not match: bytes were damaged on the way, or something "
                "else than this protocol was sent");
  }
}

void Connection::State::hand_out() {
  const bool farewell = frame.has_failure() && frame.request() == 0;
  Error failure;
  if (farewell) failure = to_error(frame.failure());
  if (const auto current = handlers; current && current->on_frame) current->on_frame(frame);
  if (farewell && phase == Phase::open) finish(std::move(failure));
}

// ---- writing
// ---------------------------------------------------------------------------------------

void Connection::State::schedule_flush() {
  if (flush_scheduled || write_blocked) return;
  flush_scheduled = true;
  asio::post(socket.get_executor(), [this, keep = self()] {
    flush_scheduled = false;
    flush();
  });
}

void Connection::State::flush() {
  if (phase == Phase::closed || write_blocked) return;
  switch (write()) {
    case Written::all:
      if (phase == Phase::failing) {
        // Not closed yet: closing with unread bytes would reset the connection, and the peer might
        // never read the Failure.
        SystemError ignored;
        socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
      }
      return;
    case Written::blocked:
      write_blocked = true;
      socket.async_wait(asio::ip::tcp::socket::wait_write,
                        [this, keep = self()](const SystemError&) {
                          write_blocked = false;
                          flush();
                        });
      return;
    case Written::broken:
      // The peer's last frames may wait to be read: reading finds the end. A failing connection, or
      // one that was never started, has nothing to wait for.
      if (phase == Phase::failing || !reading)
        finish({Fault::closed, peer + " closed the connection"});
      return;
  }
}

// Hands to the kernel what it takes now.
Written Connection::State::write() {
  while (!write_broken) {
    if (written == writing.size()) {
      writing.clear();
      written = 0;
      if (writing.capacity() > kIdleBufferBytesMax) writing = std::string();
      if (queued.empty()) return Written::all;
      writing.swap(queued);
    }
    SystemError ec;
    const std::size_t bytes =
        socket.write_some(asio::buffer(writing.data() + written, writing.size() - written), ec);
    if (would_block(ec)) return Written::blocked;
    if (ec) break;
    written += bytes;
    ++counters.writes;
    counters.bytes_out += bytes;
    last_sent = Clock::now();
  }
  write_broken = true;
  queued.clear();
  writing.clear();
  written = 0;
  return Written::broken;
}

// ---- time
// ------------------------------------------------------------------------------------------

// One timer for everything, which looks at the times when it wakes: sending and receiving never
// touch it.
void Connection::State::watch() {
  const auto quiet = std::min(last_sent + options.heartbeat, last_received + options.silence_max);
  timer.expires_at(phase == Phase::failing ? linger_end : quiet);
  timer.async_wait([this, keep = self()](const SystemError& ec) {
    if (!ec && phase != Phase::closed) on_timer();
  });
}

void Connection::State::on_timer() {
  const auto now = Clock::now();
  if (phase == Phase::failing) {
    if (now >= linger_end) return finish(reason);
    return watch();
  }
  if (now >= last_received + options.silence_max) {
    // Not the peer's silence if this process itself stood still: then this comes late, or what the
    // peer sent meanwhile waits to be read.
    const bool late = now - timer.expiry() > options.silence_max / 2;
    SystemError ec;
    if (!late && (socket.available(ec) == 0 || ec)) {
      return finish({Fault::timeout, "nothing was heard from " + peer + " for " +
                                         std::to_string(options.silence_max.count()) +
                                         " ms: it hangs, or the network does"});
    }
    last_received = now;
  }
  if (now >= last_sent + options.heartbeat) send_heartbeat();
  if (phase == Phase::open) watch();
}

void Connection::State::send_heartbeat() {
  last_sent = Clock::now();
  if (unsent() > 0) return;  // a peer that does not read gets nothing on top
  heartbeat.mutable_heartbeat()->Clear();
  if (const auto current = handlers; current && current->fill_heartbeat && !held) {
    current->fill_heartbeat(*heartbeat.mutable_heartbeat());
  }
  owner->send(heartbeat);
}

// ---- the end
// ---------------------------------------------------------------------------------------

void Connection::State::finish(Error why) {
  if (phase == Phase::closed) return;
  if (phase == Phase::open) reason = std::move(why);
  phase = Phase::closed;
  timer.cancel();
  SystemError ignored;
  socket.close(ignored);
  queued = writing = std::string();
  written = 0;
  schedule_tell();
}

void Connection::State::schedule_tell() {
  asio::post(socket.get_executor(), [this, keep = self()] { tell(); });
}

void Connection::State::tell() {
  if (told || held || !handlers) return;
  told = true;
  const auto last = std::move(handlers);
  if (last->on_closed) last->on_closed(reason);
}

// ---- the public side
// -------------------------------------------------------------------------------

Connection::Connection(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->owner = this;
}
Connection::~Connection() = default;

std::shared_ptr<Connection> Connection::make(asio::ip::tcp::socket socket,
                                             ConnectionOptions options) {
  SystemError ignored;  // a socket that is lost already shows when it is read
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.non_blocking(true, ignored);
  ::fcntl(socket.native_handle(), F_SETFD, FD_CLOEXEC);
  return std::shared_ptr<Connection>(
      new Connection(std::make_unique<State>(std::move(socket), options)));
}

void Connection::start(Handlers handlers) {
  State& state = *state_;
  TWOFOLD_CHECK(!state.handlers && !state.told);
  state.handlers = std::make_shared<Handlers>(std::move(handlers));
  if (state.phase == State::Phase::closed) return state.schedule_tell();
  if (state.phase == State::Phase::open) state.begin();
}

void Connection::replace_handlers(Handlers handlers) {
  State& state = *state_;
  if (state.told) return;
  state.handlers = std::make_shared<Handlers>(std::move(handlers));
  if (!std::exchange(state.held, false)) return;
  if (state.phase == State::Phase::closed) return state.schedule_tell();
  asio::post(state.socket.get_executor(), [&state, keep = shared_from_this()] {
    state.dispatch();
    state.read();
  });
}

void Connection::hold() {
  state_->held = true;
}

void Connection::set_peer_limit(std::size_t frame_bytes_max) {
  state_->peer_limit = std::max(frame_bytes_max, kPeerLimitMin);
}

bool Connection::send(const wire::Frame& frame) {
  State& state = *state_;
  if (state.phase != State::Phase::open) return false;
  const std::size_t bytes = frame.ByteSizeLong();
  if (bytes > state.peer_limit) return false;
  if (state.write_broken) return true;  // lost like anything under way; on_closed is about to come
  if (state.unsent() + kFrameHeaderBytes + bytes > state.options.send_bytes_max) {
    state.finish({Fault::closed, state.peer + " does not read: " + std::to_string(state.unsent()) +
                                     " bytes wait for it, and send_bytes_max is " +
                                     std::to_string(state.options.send_bytes_max)});
    return false;
  }
  append_frame(frame, bytes, state.queued);
  ++state.counters.frames_out;
  state.schedule_flush();
  return true;
}

void Connection::flush_blocking() {
  State& state = *state_;
  const auto end = Clock::now() + kFlushMax;
  while (state.phase != State::Phase::closed && state.write() == Written::blocked) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return;
    pollfd writable{state.socket.native_handle(), POLLOUT, 0};
    ::poll(&writable, 1, static_cast<int>(left.count()));
  }
}

void Connection::fail(wire::FailureCode code, const std::string& text) {
  State& state = *state_;
  if (state.phase != State::Phase::open) return;
  state.phase = State::Phase::failing;
  state.reason = {fault_of(code), state.peer + ": " + text};
  state.linger_end = Clock::now() + kLingerMax;
  wire::Frame failure;
  failure.mutable_failure()->set_code(code);
  failure.mutable_failure()->set_text(std::string(utf8_prefix(text, kFailureTextMax)));
  append_frame(failure, state.queued);
  ++state.counters.frames_out;
  state.schedule_flush();
  state.watch();
  state.read();
}

void Connection::close(const Error& why) {
  State& state = *state_;
  if (state.phase != State::Phase::open) return;
  state.write();
  state.finish(why);
}

bool Connection::is_open() const {
  return state_->phase == State::Phase::open;
}
std::string Connection::peer() const {
  return state_->peer;
}
Connection::Counters Connection::counters() const {
  return state_->counters;
}

}  // namespace twofold
