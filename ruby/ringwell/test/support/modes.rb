# frozen_string_literal: true

require_relative "../../examples/support/small_scheduler"
begin
  require "async"
rescue LoadError
  # Only our own scheduler is available.
end

# Runs the same sequential code in plain threads, and in fibers of every available scheduler.
module Modes
  ALL = [:threads, :small_scheduler, *(:async if defined?(Async))].freeze

  # Runs the block `count` times at once.
  #
  # @return [Array] the blocks' results, or the exceptions that they raised
  def self.run(mode, count, &block)
    results = Array.new(count)
    job = lambda do |index|
      results[index] = block.call(index)
    rescue => error
      results[index] = error
    end
    send(mode, count, job)
    results
  end

  def self.threads(count, job)
    count.times.map { |index| Thread.new { job.call(index) } }.each(&:join)
  end

  def self.small_scheduler(count, job)
    Thread.new do
      Fiber.set_scheduler(SmallScheduler.new)
      count.times { |index| Fiber.schedule { job.call(index) } }
    end.join
  end

  def self.async(count, job)
    Thread.new do
      Async { |task| count.times { |index| task.async { job.call(index) } } }
    end.join
  end
  private_class_method :threads, :small_scheduler, :async
end
