# frozen_string_literal: true

require "active_job"
require_relative "../calls"

module Ringwell
  # Sends the outcome of a call to the server, as soon as it can be reached:
  #
  #     Ringwell::OutcomeJob.perform_later(call_id, type: "sale", value: "129.50", currency: "EUR",
  #                                                 external_id: order.number)
  #
  # While the server is unreachable or fails, the job is tried ten times over about an hour. However
  # often it runs, the outcome is recorded once: without an `external_id`, the job's id identifies
  # the outcome. If the server refuses the outcome, the job fails at once. Needs `management:` in
  # config/ringwell.yml.
  class OutcomeJob < ActiveJob::Base
    ATTEMPTS = 10
    private_constant :ATTEMPTS

    # The server failed, as opposed to refusing the request.
    class Retryable < Error; end

    queue_as :default
    retry_on TransportError, Retryable, attempts: ATTEMPTS,
      wait: ->(executions) { (executions**4) + 2 }

    # @param call [String, Integer] the call's id
    # @param outcome see {Calls#outcome}
    def perform(call, **outcome)
      outcome[:idempotency_key] = job_id unless outcome[:external_id]
      Rails.calls.outcome(call, **outcome)
    rescue ServerError => error
      raise unless error.retryable? || error.status == 429

      raise Retryable, error.message
    end
  end
end
