# frozen_string_literal: true

require "coverage"

# Fails the run if lines and branches of lib/ are covered less than this; tells what is not.
module Covered
  PERCENT_MIN = 99.96
  LIB = File.expand_path("../../lib", __dir__)

  def self.start = Coverage.start(lines: true, branches: true)

  # @return [Boolean] whether it is enough
  def self.report
    hit = all = 0
    Coverage.result.sort.each do |file, result|
      next unless file.start_with?("#{LIB}/")

      points(result).each do |place, count|
        all += 1
        hit += 1 if count.positive?
        warn "not covered: #{file.delete_prefix("#{LIB}/")}:#{place}" if count.zero?
      end
    end
    percent = 100.0 * hit / all
    puts format("coverage: %.2f %% of %d lines and branches", percent, all)
    percent >= PERCENT_MIN
  end

  def self.points(result)
    lines = result[:lines].each_with_index.filter_map { |count, index| [index + 1, count] if count }
    branches = result[:branches].flat_map do |(_, _, _), ways|
      ways.map { |(kind, _, line), count| ["#{line} (#{kind})", count] }
    end
    lines + branches
  end
  private_class_method :points
end

Covered.start
