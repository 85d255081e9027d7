# frozen_string_literal: true

# A counter that one task increments all the time while others read it. One version uses threads and
# a mutex. In the other version, one fiber owns the counter, and lets other fibers run after every
# 100,000 increments.
#
# The published result is that the evented counter is "more than twice" as fast. The larger
# differences are the readers' waiting time and the values that they read: no other fiber runs
# during the owner's step, so readers see only whole steps.
require_relative "support/evented"

SECONDS = 0.25
STEP = 100_000

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# Counts behind a mutex.
class LockedCounter
  def initialize
    @mutex = Mutex.new
    @value = 0
  end

  def value = @mutex.synchronize { @value }

  def count_until(moment)
    @mutex.synchronize { @value += 1 } while now < moment
  end
end

# Counts in one fiber. Other fibers read between two steps.
class OwnedCounter
  attr_reader :value

  def initialize
    @value = 0
  end

  def count_until(moment)
    while now < moment
      # Checks the clock each time, like the other counter.
      STEP.times { now && @value += 1 }
      sleep 0
    end
  end
end

# Reads every 5 ms.
#
# @return [Array] the values, and the longest time that a reader waited for its turn
def read_until(counter, moment)
  values = []
  waited = 0
  while (asked = now) < moment
    sleep 0.005
    values << counter.value
    waited = [waited, now - asked - 0.005].max
  end
  [values, waited]
end

locked = LockedCounter.new
ends = now + SECONDS
counting = Thread.new { locked.count_until(ends) }
_, locked_wait = read_until(locked, ends)
counting.join

owned = OwnedCounter.new
values, owned_wait = Evented.run do
  ends = now + SECONDS
  Fiber.schedule { owned.count_until(ends) }
  read_until(owned, ends)
end

puts format("locked: %5.2f million/s, a reader waited %3.0f ms at most",
  locked.value / SECONDS / 1e6, locked_wait * 1000)
puts format("owned:  %5.2f million/s, a reader waited %3.0f ms at most",
  owned.value / SECONDS / 1e6, owned_wait * 1000)
puts format("owned counter over locked one: %.1f times as fast   (published: more than twice, 1.5 " \
            "in an application)", owned.value.fdiv(locked.value))
whole = values.all? { |value| (value % STEP).zero? }
puts "readers of the owned counter saw whole steps only: #{whole}"
