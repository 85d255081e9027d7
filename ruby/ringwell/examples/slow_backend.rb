# frozen_string_literal: true

# An action that waits for a backend, many visitors at a time, in one process.
#
# The action is plain sequential Ruby: it sends a request, waits, and answers. A process that blocks
# serves one visitor at a time. The published results for Rails on such a server with a 100 ms
# backend are 9.34 requests/s, and about 220 requests/s when waiting actions are parked. For 100
# requests, 30 at a time, to a backend of about 180 ms, they are 5.46 and 52.00 requests/s. Here,
# the scheduler parks waiting actions without extra code.
require_relative "support/evented"
require_relative "support/web"

# Returns the requests per second, blocking and evented, if each request waits this many seconds.
def rates(waits, requests:, at_once:)
  backend = Web::Server.new { sleep(waits) && "data" }.in_threads
  action = ->(_path) { "page with #{Web.get(backend.port)}" }
  blocking = Web::Server.new(&action).one_by_one
  # Requests are served one after another, so the number of waiting requests does not matter.
  blocked = 4 / Web.load(blocking.port, requests: 4, at_once: 4)
  evented = Evented.run do
    server = Web::Server.new(&action).in_fibers
    seconds = Thread.new { Web.load(server.port, requests:, at_once:) }.value
    server.stop
    requests / seconds
  end
  [backend, blocking].each(&:stop)
  [blocked, evented]
end

blocked, evented = rates(0.1, requests: 128, at_once: 32)
puts format("100 ms, blocking: %6.1f requests/s   (published: 9.34)", blocked)
puts format("100 ms, evented:  %6.1f requests/s   (published: about 220; ideal: 320)", evented)

blocked, evented = rates(0.18, requests: 100, at_once: 30)
puts format("180 ms, blocking: %6.2f requests/s   (published: 5.46)", blocked)
puts format("180 ms, evented:  %6.1f requests/s   (published: 52.00; ideal: 139)", evented)
