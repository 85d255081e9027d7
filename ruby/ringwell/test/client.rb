# frozen_string_literal: true

# Runs only the client's tests, for Rubies without the engine:
# `ruby test/client.rb [minitest's options]`.
$LOAD_PATH.unshift File.expand_path("../lib", __dir__), __dir__
require "helper"
%w[client connection endpoints faults overflow instrumentation response value fake pool_list config calls webhooks]
  .each { |name| require "#{name}_test" }
exit Minitest.run(ARGV)
