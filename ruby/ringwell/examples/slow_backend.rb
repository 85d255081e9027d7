# frozen_string_literal: true

# An action that waits 100 ms for a backend, 32 visitors at a time, in one process.
#
# The action is plain linear Ruby: it asks, waits, and answers. Blocking, a process serves one
# visitor at a time; published for Rails on such a server were 9.34 requests/s, and about 220 once
# its waiting actions were parked. Here the scheduler parks them without being asked.
require_relative "support/evented"
require_relative "support/web"

VISITORS = 32

backend = Web::Server.new do
  sleep 0.1
  "data"
end
backend.in_threads

action = ->(_path) { "page with #{Web.get(backend.port)}" }

blocking = Web::Server.new(&action).one_by_one
requests_blocking = 4 / Web.load(blocking.port, requests: 4, at_once: 4)

requests_evented = Evented.run do
  evented = Web::Server.new(&action).in_fibers
  seconds = Thread.new { Web.load(evented.port, requests: 4 * VISITORS, at_once: VISITORS) }.value
  evented.stop
  4 * VISITORS / seconds
end
[backend, blocking].each(&:stop)

puts format("blocking: %6.1f requests/s   (published: 9.34)", requests_blocking)
puts format("evented:  %6.1f requests/s   (published: about 220; ideal: 320)", requests_evented)
