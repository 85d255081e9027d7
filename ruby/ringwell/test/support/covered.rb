# frozen_string_literal: true

require "coverage"

# Measures the coverage of lib/'s lines and branches, lists those that are not covered, and fails
# the run if coverage is too low.
module Covered
  # Not 100, because a few lines handle races that do not occur in every run.
  PERCENT_MIN = 99.7
  LIB = File.expand_path("../../lib", __dir__)

  def self.start = Coverage.start(lines: true, branches: true)

  # @return [Hash{String => Integer}] the number of times that each line and branch of lib/ ran in
  #   this process
  def self.result
    ours = Coverage.result.select { |file, _| file.start_with?("#{LIB}/") }
    ours.sort.flat_map { |file, result|
      points(result).map { |place, count| ["#{file.delete_prefix("#{LIB}/")}:#{place}", count] }
    }.to_h
  end

  # @param results [Array<Hash>] the results of all processes
  # @return [Boolean] whether the coverage is high enough
  def self.report(results)
    counts = results.reduce { |one, other| one.merge(other) { |_, a, b| a + b } }
    missed = counts.select { |_, count| count.zero? }.keys
    missed.each { |place| warn "not covered: #{place}" }
    percent = 100.0 * (counts.size - missed.size) / counts.size
    puts format("coverage: %.2f %% of %d lines and branches", percent, counts.size)
    percent >= PERCENT_MIN
  end

  def self.points(result)
    lines = result[:lines].each_with_index.filter_map { |count, index| [index + 1, count] if count }
    branches = result[:branches].flat_map do |(_, _, _), ways|
      # The number distinguishes the branches of one line.
      ways.map { |(kind, number, line), count| ["#{line} (#{kind} #{number})", count] }
    end
    lines + branches
  end
  private_class_method :points
end

Covered.start
