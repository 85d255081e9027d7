# frozen_string_literal: true

module Ringwell
  # A moment on the monotonic clock by which an answer must be there. Every wait of a call is
  # bounded by what is left of it, so that waits never add up to more.
  class Deadline
    # Seconds on the monotonic clock, which is never set.
    def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # @param seconds [Numeric] from now on
    # @raise [ArgumentError] if there is no time at all
    def initialize(seconds)
      seconds.is_a?(Numeric) && seconds.positive? or
        raise ArgumentError, "deadline must be seconds above 0, got #{seconds.inspect}"
      @seconds = seconds
      @at = Deadline.now + seconds
    end

    # @return [Float] seconds, negative when it is over
    def left = @at - Deadline.now

    # @return [Float] seconds, above 0
    # @raise [DeadlineExceeded] naming what was waited for
    def left!(waiting_for)
      seconds = left
      return seconds if seconds.positive?

      raise DeadlineExceeded, "#{waiting_for}: not within #{(@seconds * 1000).round} ms"
    end

    # One of so many equal parts of what is left, for something that is worth another try.
    def part(parts)
      parts == 1 ? self : Deadline.new(left!("any endpoint") / parts)
    end

    # For the server, in whole milliseconds: less than what is left, by a tenth or 10 ms, so that
    # its answer, with overflow numbers where a shard is slow, still comes in time.
    def milliseconds_for_server
      seconds = left
      ((seconds - [seconds * 0.1, 0.01].min) * 1000).to_i.clamp(0, 60_000)
    end
  end
end
