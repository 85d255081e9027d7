# frozen_string_literal: true

require_relative "base"
require_relative "webhooks/event"
require_relative "webhooks/seen"
require_relative "webhooks/signature"

module Ringwell
  # Receives a server's webhooks about calls, as a Rack application:
  #
  #     mount Ringwell::Webhooks.new(ENV.fetch("RINGWELL_WEBHOOK_SECRET")) { |hooks|
  #       hooks.on("call.completed") { |event| OutcomeJob.perform_later(event.data["id"]) }
  #     } => "/ringwell/webhooks"
  #
  # Requests are verified according to Standard Webhooks 1.0. A server sends each event at least
  # once, and repeats it until the answer is 2xx. A repeated event is answered, but no handler is
  # called. Handlers should be quick, because the sender waits for 15 s; do long work in a job.
  #
  # | answer | when |
  # |---|---|
  # | 204 | the event was handled, was seen before, or has no handler for its type |
  # | 400 | headers are missing, or the body is not an event |
  # | 401 | the signature or its time is wrong |
  # | 410 | a handler raised {Gone}: the server sends nothing more |
  # | 413 | the body is too long |
  # | 500 | a handler raised something else: the server tries again |
  class Webhooks
    # Raised by a handler to refuse further events.
    class Gone < Error; end

    # No event is longer.
    BODY_BYTES_MAX = 256 * 1024

    # @param secrets [String, Array<String>] "whsec_…"; two while the secret is being replaced
    # @param tolerance [Numeric] how far the sender's clock may differ, in seconds
    # @param seen [#add?, #delete] stores event ids; if several processes receive events, a store
    #   that they share, e.g. {CacheSeen}
    # @param clock [#call] seconds since 1970
    # @yieldparam hooks [self] calls {#on}
    # @raise [ConfigError] a secret is invalid
    def initialize(secrets, tolerance: 300, seen: Seen.new, clock: -> { Time.now.to_i })
      @signature = Signature.new(secrets, tolerance: tolerance)
      @seen = seen
      @clock = clock
      @handlers = Hash.new { |_, _| [] }
      yield self if block_given?
    end

    # Calls the block for each event with one of these types.
    #
    # @param types [Array<String>] e.g. "call.completed"; without any, all events
    # @yieldparam event [Event]
    # @return [self]
    def on(*types, &handler)
      handler or raise ArgumentError, "on needs a block"
      types = [nil] if types.empty?
      types.each { |type| @handlers[type] = @handlers[type] + [handler] }
      self
    end

    # @param env [Hash] the Rack environment
    # @return [Array] status, headers, body
    def call(env)
      return answer(405, "send a POST", "allow" => "POST") unless env["REQUEST_METHOD"] == "POST"

      body = read(env["rack.input"]) or return answer(413, "the body is too long")
      headers = %w[ID TIMESTAMP SIGNATURE].map { |name| env["HTTP_WEBHOOK_#{name}"].to_s }
      return answer(400, "webhook-id, -timestamp or -signature is missing") if headers.any?(&:empty?)

      wrong = @signature.wrong(*headers, body, now: @clock.call)
      wrong ? answer(401, wrong) : handle(Event.read(headers[0], body))
    rescue Event::Unreadable => error
      answer(400, error.message)
    end

    private

    # A middleware that parses forms may already have read the input to its end, and Rack 3 does not
    # rewind it.
    def read(input)
      return "" unless input

      input.respond_to?(:rewind) && input.rewind
      body = input.read(BODY_BYTES_MAX + 1) || ""
      body if body.bytesize <= BODY_BYTES_MAX
    end

    def handle(event)
      return answer(204) unless @seen.add?(event.id)

      begin
        (@handlers[event.type] + @handlers[nil]).each { |handler| handler.call(event) }
        answer(204)
      rescue Gone
        answer(410, "no more of these, please")
      rescue Exception # rubocop:disable Lint/RescueException -- the event was not handled
        @seen.delete(event.id)
        raise
      end
    end

    def answer(status, text = nil, **headers)
      return [status, {}, []] unless text

      [status, {"content-type" => "text/plain; charset=utf-8", **headers}, ["#{text}\n"]]
    end
  end
end
