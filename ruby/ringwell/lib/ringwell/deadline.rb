# frozen_string_literal: true

module Ringwell
  # The time on the monotonic clock by which an answer must have arrived. Each wait of a call is
  # limited to the remaining time, so that their sum never exceeds it.
  class Deadline
    # Seconds on the monotonic clock, which is never adjusted.
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
    # @raise [DeadlineExceeded] names the operation that was waited for
    def left!(waiting_for)
      seconds = left
      return seconds if seconds.positive?

      raise DeadlineExceeded, "#{waiting_for}: not within #{(@seconds * 1000).round} ms"
    end

    # One of this many equal parts of the remaining time, for an operation that is worth a second
    # try.
    def part(parts)
      parts == 1 ? self : Deadline.new(left!("any endpoint") / parts)
    end

    # For the server, in whole milliseconds: the remaining time less a tenth or 10 ms, so that its
    # answer, with overflow numbers if a shard is slow, still arrives in time.
    def milliseconds_for_server
      seconds = left
      ((seconds - [seconds * 0.1, 0.01].min) * 1000).to_i.clamp(0, 60_000)
    end
  end
end
