# frozen_string_literal: true

# A Rack application with an engine and the pools of RINGWELL_POOLS, for servers that are separate
# programs.
$LOAD_PATH.unshift File.expand_path("../../lib", __dir__)
require "ringwell/engine"
require "ringwell/rack"

pools = JSON.parse(ENV.fetch("RINGWELL_POOLS"), symbolize_names: true)
run Ringwell::Rack::App.new(Ringwell::Engine.open(durability: :memory, ring_pools: pools))
