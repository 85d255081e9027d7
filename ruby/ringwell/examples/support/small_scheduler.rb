# frozen_string_literal: true

require "io/wait"

# A minimal `Fiber::Scheduler`, to test fibers without any gem. Do not use it elsewhere, because
# each round checks all waiting fibers.
class SmallScheduler
  def initialize
    @waiting = {}      # fiber => [io, events] or nil
    @wake_at = {}      # fiber => moment on the monotonic clock
    @ready = []
    @from_elsewhere = Thread::Queue.new
    @bell, @ring = IO.pipe
  end

  # Runs until no fiber is left.
  def run
    until @waiting.empty? && @ready.empty?
      select_once
      @ready.slice!(0..).each { |fiber, result| fiber.resume(result) if fiber.alive? }
    end
  end

  def close
    run
    [@bell, @ring].each(&:close)
  end

  def fiber(&block)
    Fiber.new(blocking: false, &block).tap(&:resume)
  end

  def io_wait(io, events, timeout) = park([io, events], timeout)

  def kernel_sleep(duration = nil) = block(:sleep, duration)

  def block(_blocker, timeout = nil) = park(nil, timeout)

  # The only hook that other threads may call.
  def unblock(_blocker, fiber)
    @from_elsewhere << fiber
    @ring.write_nonblock(".", exception: false)
  end

  # Makes Process.wait and similar methods block a separate thread.
  def process_wait(pid, flags) = Thread.new { Process::Status.wait(pid, flags) }.value

  private

  def park(interest, timeout)
    fiber = Fiber.current
    @waiting[fiber] = interest
    @wake_at[fiber] = now + timeout if timeout
    Fiber.yield
  ensure
    @waiting.delete(fiber)
    @wake_at.delete(fiber)
  end

  def select_once
    reading = ios(IO::READABLE)
    writing = ios(IO::WRITABLE)
    readable, writable = IO.select(reading.keys << @bell, writing.keys, nil, pause)
    @bell.read_nonblock(4096, exception: false) if readable&.include?(@bell)
    readable&.each { |io| wake(reading[io], IO::READABLE) }
    writable&.each { |io| wake(writing[io], IO::WRITABLE) }
    wake_blocked(@from_elsewhere.pop) until @from_elsewhere.empty?
    wake(@wake_at.select { |_, at| at <= now }.keys, false)
  end

  def ios(event)
    @waiting.each_with_object(Hash.new { |all, io| all[io] = [] }) do |(fiber, interest), found|
      found[interest[0]] << fiber if interest && interest[1].anybits?(event)
    end
  end

  def wake(fibers, result)
    fibers&.each do |fiber|
      @ready << [fiber, result] if @waiting.key?(fiber) && @ready.none? { |one, _| one == fiber }
    end
  end

  # A wake-up may come late: the fiber may already have given up, and may now wait for an IO.
  def wake_blocked(fiber)
    wake([fiber], true) unless @waiting[fiber]
  end

  def pause
    return 0 unless @ready.empty? && @from_elsewhere.empty?

    @wake_at.empty? ? nil : [@wake_at.values.min - now, 0].max
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
