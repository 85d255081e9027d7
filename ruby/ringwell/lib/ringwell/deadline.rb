# frozen_string_literal: true

module Ringwell
  # The time on the monotonic clock by which an answer must have arrived. Each wait in a call is
  # limited to the remaining time, so that the whole call never exceeds the deadline.
  class Deadline
    # Seconds on the monotonic clock, which is never adjusted.
    def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

    # @param seconds [Numeric] from now
    # @raise [ArgumentError] unless `seconds` is a positive number
    def initialize(seconds)
      seconds.is_a?(Numeric) && seconds.positive? or
        raise ArgumentError, "deadline must be seconds above 0, got #{seconds.inspect}"
      @seconds = seconds
      @at = Deadline.now + seconds
    end

    # @return [Float] seconds; negative after the deadline
    def left = @at - Deadline.now

    # @return [Float] seconds, above 0
    # @raise [DeadlineExceeded] names the operation that took too long
    def left!(waiting_for)
      seconds = left
      return seconds if seconds.positive?

      raise DeadlineExceeded, "#{waiting_for}: not within #{(@seconds * 1000).round} ms"
    end

    # The deadline for one of this many attempts, which share the remaining time equally.
    def part(parts)
      parts == 1 ? self : Deadline.new(left!("any endpoint") / parts)
    end

    # The server's deadline in whole milliseconds: the remaining time minus a tenth or 10 ms. The
    # server's answer, with overflow numbers if a shard is slow, then still arrives in time.
    def milliseconds_for_server
      seconds = left
      ((seconds - [seconds * 0.1, 0.01].min) * 1000).to_i.clamp(0, 60_000)
    end
  end
end
