# frozen_string_literal: true

# An application's jobs, loaded by Sidekiq. As soon as Sidekiq has started, they are queued: three
# jobs with the same call's outcome, and 40 jobs that request a number.
require "active_job"
require "sidekiq"
require "ringwell"
require "ringwell/rails"
require "ringwell/rails/outcome_job"

Ringwell::Rails.settings = Ringwell::Config.new(endpoints: [ENV.fetch("RING_POOL_SERVER")], deadline: 10,
  management: {url: ENV.fetch("RING_POOL_SERVER"), token: ENV.fetch("TOKEN")})
Ringwell.client = Ringwell::Rails.settings.client
ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob::Base.logger = Logger.new(File::NULL)

# Requests a number, and writes it to a file.
class NumberJob < ActiveJob::Base
  def perform
    number = Ringwell.client.allocate("42", key: ENV.fetch("RING_POOL_KEY")).number
    Sidekiq.redis { |redis| redis.rpush("numbers", number) }
  end
end

Sidekiq.configure_server do |config|
  config.on(:startup) do
    sale = {type: "sale", value: "129.50", currency: "EUR", external_id: "order 7"}
    3.times { Ringwell::OutcomeJob.perform_later(ENV.fetch("CALL"), **sale) }
    40.times { NumberJob.perform_later }
  end
end
