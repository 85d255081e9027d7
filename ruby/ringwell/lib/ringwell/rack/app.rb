# frozen_string_literal: true

module Ringwell
  module Rack
    # The published API as a Rack application, for Rack 2.2 and 3:
    #
    #     run Ringwell::Rack::App.new(Ringwell::Client.new("unix:/run/ringwell.sock"))
    #
    # Its backend is any object with `bulk(body) -> body`, which takes a batch's bytes, returns the
    # answer's bytes, and raises refusals as {ServerError}. The application handles paths, methods,
    # limits and the single allocation; only the backend interprets rows.
    #
    # The application rescues all backend errors, so that none ends the process.
    class App
      # The maximum length of a body, as in the server.
      BODY_BYTES = 1024 * 1024
      # The maximum length of path and query together.
      URI_BYTES = 8 * 1024

      # The status paths, which contain no date.
      STATUS = %w[/status /readyz].freeze

      BULK_METHODS = "POST, OPTIONS"
      SINGLE_METHODS = "GET, HEAD, OPTIONS"

      DATE = /\A\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\z/
      SINGLE = %r{\Aring_pools/(?<pool>[^/]*)/allocate_number\.(?<format>json|xml|csv)\z}i

      # @param backend [#bulk] a {Client}, a {Fake}, or an in-process engine
      # @param body_bytes [Integer] the maximum length of a request's body
      # @param bulk_only [Boolean] whether the single allocation is refused
      def initialize(backend, body_bytes: BODY_BYTES, bulk_only: false)
        @backend = backend
        @body_bytes = body_bytes
        @bulk_only = bulk_only
        @draining = false
      end

      # Makes `/status` return 503, as it does while the backend is not ready, so that a proxy
      # chooses another server. Requests are still answered.
      def drain! = @draining = true

      # @param env [Hash] the Rack environment
      # @return [Array] status, headers, body
      def call(env)
        started = Deadline.now
        answer = begin
          route(env, "#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}")
        rescue ServerError => error
          refusal(error)
        rescue TransportError => error
          unavailable(error)
        rescue StandardError, ScriptError, SystemStackError => error
          fault(env, error)
        end
        answer.to_a(Deadline.now - started, head: env["REQUEST_METHOD"] == "HEAD")
      end

      private

      def route(env, path)
        return status(env) if STATUS.include?(path)

        # A base URL that ends in a slash produces a double slash.
        path = path.sub(%r{\A/+}, "/").delete_suffix("/")
        version, rest = path.delete_prefix("/api/").split("/", 2)
        path.start_with?("/api/") && rest or return nothing_here
        DATE.match?(version) or
          return Answer.refused(400, "InvalidInput",
            "the API version in the path must be a date such as 2013-07-01")
        return bulk(env) if rest.casecmp?("bulk.json")

        parts = SINGLE.match(rest) or return nothing_here
        single(env, path, parts[:pool], parts[:format].downcase)
      end

      # Also answers proxies and clients that request the server's `/readyz`.
      def status(env)
        return wrong_method("GET") unless %w[GET HEAD].include?(env["REQUEST_METHOD"])
        return Answer.refused(503, "ServiceUnavailable", "draining") if @draining

        if @backend.respond_to?(:ready?) && !@backend.ready?
          return Answer.refused(503, "ServiceUnavailable", "the backend is not ready")
        end

        Answer.batch('{"status":"up"}')
      end

      def bulk(env)
        return Answer.allowed(BULK_METHODS) if env["REQUEST_METHOD"] == "OPTIONS"
        return wrong_method(BULK_METHODS) unless env["REQUEST_METHOD"] == "POST"

        length = env["CONTENT_LENGTH"].to_s
        length.match?(/\A\d*\z/) or
          return Answer.refused(400, "InvalidInput", "content-length is not a number")
        body = read_body(env["rack.input"], length) or
          return Answer.refused(413, "InvalidInput",
            "the body may have at most #{@body_bytes} bytes",
            connection: "close")
        return cut_short(body, length) unless length.empty? || length.to_i == body.bytesize

        Answer.batch(@backend.bulk(body, **terms(env)))
      end

      # Reads one byte more than allowed, to detect a body that is too long. A middleware that
      # parses forms may already have read the input to its end, and Rack 3 does not rewind it.
      def read_body(input, length)
        return if length.to_i > @body_bytes
        return "" unless input

        input.rewind if input.respond_to?(:rewind)
        body = input.read(@body_bytes + 1) || ""
        body if body.bytesize <= @body_bytes
      end

      def cut_short(body, length)
        Answer.refused(400, "InvalidInput",
          "the body has #{body.bytesize} of #{length} bytes: it was cut short, or a " \
          "middleware in front of this one has read it")
      end

      # Passes keywords only for headers that were sent, because a backend may not accept them.
      def terms(env)
        terms = {}
        once = env["HTTP_IDEMPOTENCY_KEY"].to_s
        terms[:idempotency_key] = once if Allocator::IDEMPOTENCY_KEY.match?(once)
        milliseconds = env["HTTP_RINGWELL_DEADLINE_MS"].to_s[/\A\d{1,8}\z/]
        terms[:deadline] = sooner(milliseconds.to_i) if milliseconds
        terms
      end

      # A client may shorten our deadline, but never extend it.
      def sooner(milliseconds)
        [[milliseconds, 1].max / 1000.0, *@backend.deadline].min
      end

      # Sends a batch of one row, and answers in another format.
      def single(env, path, pool, format)
        return Answer.allowed(SINGLE_METHODS) if env["REQUEST_METHOD"] == "OPTIONS"
        # Returns the headers of a GET, but does not use up a number.
        return Answer.head(format) if env["REQUEST_METHOD"] == "HEAD"
        return wrong_method(SINGLE_METHODS) unless env["REQUEST_METHOD"] == "GET"

        if @bulk_only
          return Answer.refused(403, "OnlyBulkNumberAllocationAllowed",
            "Numbers are automatically allocated by the PNAPI server")
        end
        query = printable(env["QUERY_STRING"].to_s)
        if path.bytesize + 1 + query.bytesize > URI_BYTES
          return Answer.refused(414, "InvalidInput",
            "path and query may have at most #{URI_BYTES} bytes")
        end
        return unknown_pool(pool, query, format) unless pool.match?(/\A\d+\z/)

        suffix = "#{pool}/allocate_number.json?#{query}"
        answer = @backend.bulk(JSON.generate("requests" => [{"api_suffix" => suffix}]))
        Answer.single(JSON.parse(answer).fetch("responses").first, format)
      end

      # In a batch, such a pool would be a malformed row. Here, it is a pool that does not exist.
      def unknown_pool(pool, query, format)
        key = query.scan(/(?:\A|&)ring_pool_key=([^&]*)/).last.to_a.first.to_s
        message = "API Key '#{CGI.unescape(key, "UTF-8")}' is not valid for resource '#{pool}'"
        Answer.failed("InvalidKey", message, format)
      end

      # Escapes bytes, because JSON accepts only UTF-8. Escaped bytes have the same meaning.
      def printable(query)
        query.b.gsub(/[^\x21-\x7e]/n) { |byte| format("%%%02X", byte.ord) }.force_encoding("UTF-8")
      end

      def nothing_here = Answer.refused(404, "RecordNotFound", "there is nothing at this path")

      def wrong_method(allow)
        Answer.refused(405, "MethodNotAllowed",
          "this path takes another method; the Allow header names it", allow: allow)
      end

      def refusal(error)
        headers = error.status == 503 ? {"retry-after": "1"} : {}
        Answer.new(error.status, Answer::JSON_TYPE, error.body, **headers)
      end

      def unavailable(error)
        Answer.refused(503, "ServiceUnavailable", error.message, "retry-after": "1")
      end

      # Logs the error once, with the handle that is in the answer.
      def fault(env, error)
        handle = rand(1_000_000_000..2_000_000_000)
        what = "#{error.class}: #{error.message} (#{error.backtrace&.first})"
        env["rack.errors"]&.puts("error handle #{handle}: #{what}")
        Answer.fault(handle)
      end
    end
  end
end
