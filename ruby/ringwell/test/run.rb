# frozen_string_literal: true

# The whole suite in one process: `ruby test/run.rb [minitest's options]`.
ENV["RINGWELL_COVERAGE"] = "yes" unless ARGV.any?(/\A-n/)
$LOAD_PATH.unshift File.expand_path("../lib", __dir__), __dir__

require "helper"
Dir["#{__dir__}/*_test.rb"].sort.each { |file| require file }

ExamplesTest.start_all if ENV["RINGWELL_COVERAGE"]
passed = Minitest.run(ARGV)
enough = ENV["RINGWELL_COVERAGE"].nil? || Covered.report
exit(passed && enough)
