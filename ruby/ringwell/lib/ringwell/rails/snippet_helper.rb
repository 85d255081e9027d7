# frozen_string_literal: true

module Ringwell
  module Rails
    # A helper for layouts: `<%= ringwell_snippet_tag %>` in the head of a page.
    module SnippetHelper
      # The tag for the server's script, which inserts each visitor's number into the page in the
      # browser. The page does not need {#ringwell_number}, and may be cached.
      #
      # If config/ringwell.yml has `snippet: { url: "https://calls.example", site: "pk_…" }`, no
      # arguments are needed. Without settings, as in tests, the tag is empty.
      #
      # @param site [String, nil] the site's public key
      # @param url [String, nil] the server's address for browsers
      # @param integrity [String, nil] "sha384-…", printed by `ringwell snippet`; pass the file name
      #   that contains this hash as `file`
      # @param file [String] the script's name on the server
      # @param options [Hash] more attributes of the tag
      # @return [String] safe HTML
      # @raise [ConfigError] the key is invalid, or the address is not a web address
      def ringwell_snippet_tag(site: nil, url: nil, integrity: nil, file: "rw.js", **options)
        settings = (Rails.settings && Rails.settings.snippet) || {}
        site ||= settings[:site] or return "".html_safe
        url ||= settings[:url]
        integrity ||= settings[:integrity]
        file = settings.fetch(:file, file)
        SnippetHelper.check(site, url)
        options = {crossorigin: "anonymous", integrity:}.merge(options) if integrity
        nonce = respond_to?(:content_security_policy_nonce) && content_security_policy_nonce
        tag.script(src: "#{url.chomp("/")}/#{file}", async: true, nonce: nonce || nil, data: {site:}, **options)
      end

      # Refuses keys that must not reach a browser.
      def self.check(site, url)
        site.to_s.match?(/\Apk_[A-Za-z0-9_-]+\z/) or
          raise ConfigError, "site must be a public key, pk_…: a ring pool's key must not be in a page"
        url.to_s.match?(%r{\A(?:https?:)?//[^/\s"'<>]+(?:/[^\s"'<>?#]*)?\z}) or
          raise ConfigError, "url must be a web address, got #{url.inspect}"
      end
    end
  end
end
