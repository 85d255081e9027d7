# frozen_string_literal: true

# A proxy in front of a slow service, in one process. Shows the delay that a blocking request causes
# for all others.
#
# The published results are for 2 s per request: 10 requests, 5 at a time, took 20.62 s when the
# handler blocked the reactor, and 4.21 s when it ran in threads. 40 requests, 20 at a time, took
# 4.41 s through a proxy that does not block. Here, everything is 20 times as fast, and both
# handlers are the same code.
require_relative "support/evented"
require_relative "support/web"

FASTER = 20

slow = Web::Server.new do
  sleep 2.0 / FASTER
  "slow"
end
slow.in_threads
handler = ->(path) { Web.get(slow.port, path) }

blocking = Web::Server.new(&handler).one_by_one
ten_blocking = Web.load(blocking.port, requests: 10, at_once: 5) * FASTER

threaded = Web::Server.new(&handler).in_threads
ten_threaded = Web.load(threaded.port, requests: 10, at_once: 5) * FASTER

ten, forty = Evented.run do
  proxy = Web::Server.new(&handler).in_fibers
  seconds = [[10, 5], [40, 20]].map do |requests, at_once|
    Thread.new { Web.load(proxy.port, requests: requests, at_once: at_once) }.value * FASTER
  end
  proxy.stop
  seconds
end
[slow, blocking, threaded].each(&:stop)

puts format("10 requests,  5 at a time, blocking: %5.2f s   (published: 20.62)", ten_blocking)
puts format("10 requests,  5 at a time, threads:  %5.2f s   (published:  4.21)", ten_threaded)
puts format("10 requests,  5 at a time, evented:  %5.2f s   (published: none; ideal: 4.00)", ten)
puts format("40 requests, 20 at a time, evented:  %5.2f s   (published:  4.41)", forty)
