# frozen_string_literal: true

require "openssl"

module Ringwell
  class Webhooks
    # Symmetric signatures of Standard Webhooks 1.0: HMAC-SHA256 of id, time and body.
    # Source: the specification at standardwebhooks.com, "Signature scheme".
    class Signature
      PREFIX = "whsec_"
      VERSION = "v1,"
      # The key lengths, in bytes, that the specification allows.
      KEY_BYTES = 24..64
      # Further signatures are ignored.
      SIGNATURES_MAX = 16

      # @param secrets [String, Array<String>] with or without the prefix
      # @param tolerance [Numeric] seconds
      # @raise [ConfigError]
      def initialize(secrets, tolerance: 300)
        @keys = Array(secrets).map { |secret| Signature.key(secret) }
        @keys.empty? and raise ConfigError, "webhooks need a secret"
        @tolerance = tolerance
      end

      # The reason why a request is not trusted.
      #
      # @param now [Integer] seconds since 1970
      # @return [String, nil] nil if it is trusted
      def wrong(id, timestamp, signatures, body, now:)
        return "webhook-timestamp is not a time" unless timestamp.match?(/\A\d{1,12}\z/)
        return "webhook-timestamp is too old" if timestamp.to_i < now - @tolerance
        return "webhook-timestamp is in the future" if timestamp.to_i > now + @tolerance

        "no signature is right" unless right?(id, timestamp, signatures, body)
      end

      # Signs a request like a server, for tests.
      #
      # @return [String] the value of `webhook-signature`
      def self.sign(secret, id, timestamp, body)
        VERSION + digest(key(secret), id, timestamp, body)
      end

      # A secret's bytes.
      #
      # @raise [ConfigError] the secret is invalid; the message does not show it
      def self.key(secret)
        key = secret.to_s.delete_prefix(PREFIX).unpack1("m0")
        KEY_BYTES.cover?(key.bytesize) or raise ArgumentError
        key
      rescue ArgumentError
        raise ConfigError, "a webhook secret must be #{PREFIX} and base64 of 24 to 64 bytes"
      end

      def self.digest(key, id, timestamp, body)
        [OpenSSL::HMAC.digest("SHA256", key, "#{id}.#{timestamp}.".b << body.b)].pack("m0")
      end
      private_class_method :digest

      private

      def right?(id, timestamp, signatures, body)
        given = signatures.split(" ", SIGNATURES_MAX + 1).first(SIGNATURES_MAX)
          .filter_map { |one| one.delete_prefix(VERSION) if one.start_with?(VERSION) }
        wanted = @keys.map { |key| self.class.send(:digest, key, id, timestamp, body) }
        # Makes all comparisons, so that the time reveals nothing.
        wanted.product(given).count { |one, other|
          one.bytesize == other.bytesize && OpenSSL.fixed_length_secure_compare(one, other)
        }.positive?
      end
    end
  end
end
