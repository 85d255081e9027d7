# frozen_string_literal: true

# An application in Puma's cluster mode with `preload_app!`: a client and an engine that were
# created before the fork, and an engine that each worker tries to open after it (cluster.rb).
require "ringwell"
require "ringwell/engine"

KEY = ENV.fetch("RING_POOL_KEY")
CLIENT = Ringwell::Client.new(ENV.fetch("RING_POOL_SERVER"), deadline: 10)
# The client has open connections when the workers are forked.
Array.new(8) { Thread.new { CLIENT.allocate("42", key: KEY) } }.each(&:join)
PARENTS = Ringwell::Engine.open(durability: :memory,
  ring_pools: [{id: 42, key: KEY, numbers: ["8885550301-8885550350"]}])
PARENTS.allocate("42", key: KEY)

number = ->(backend, pool = 42) { backend.allocate(pool, key: KEY).number }
answers = {
  "/" => -> { "here" },
  "/client/42" => -> { number.call(CLIENT) },
  "/client/43" => -> { number.call(CLIENT, 43) },
  "/parents" => -> { number.call(PARENTS) },
  "/own" => -> { $own.is_a?(Ringwell::Engine) ? number.call($own) : raise($own) }
}

run(lambda do |env|
  said = begin
    answers.fetch(env["PATH_INFO"]).call
  rescue Ringwell::Error => error
    "#{error.class}: #{error.message}"
  end
  [200, {"content-type" => "text/plain"}, ["#{Process.pid} #{said}"]]
end)
